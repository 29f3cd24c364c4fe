/* DPDK's hash table as a peer: 16-byte keys, 8-byte data, the default CRC hash function, bulk look-ups. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_memory.h>

/* The same transparent huge pages that the other tables get; nothing has touched the memory yet. */
static int ask_for_huge_pages(const struct rte_memseg_list *list, void *unused)
{
	(void)unused;
	if (list->base_va != NULL)
		madvise(list->base_va, list->len, MADV_HUGEPAGE);
	return 0;
}

int peer_start(unsigned megabytes)
{
	char memory[16];
	snprintf(memory, sizeof(memory), "%u", megabytes);
	char *arguments[] = {"bench-flow", "--no-huge", "--no-shconf", "--no-telemetry", "--no-pci",
			     "--log-level=error", "-l", "0", "-m", memory};
	if (rte_eal_init(sizeof(arguments) / sizeof(arguments[0]), arguments) < 0)
		return -1;
	return rte_memseg_list_walk(ask_for_huge_pages, NULL);
}

struct rte_hash *peer_new(uint32_t entries)
{
	static unsigned made;
	char name[24];
	snprintf(name, sizeof(name), "peer%u", made++);
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = entries,
		.key_len = 16,
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
	};
	return rte_hash_create(&parameters);
}

void peer_free(struct rte_hash *hash)
{
	rte_hash_free(hash);
}

int peer_insert(struct rte_hash *hash, const void *key, uint64_t data)
{
	return rte_hash_add_key_data(hash, key, (void *)(uintptr_t)data);
}

int peer_remove(struct rte_hash *hash, const void *key)
{
	return rte_hash_del_key(hash, key) < 0 ? -1 : 0;
}

/* Sums the data found, so that the work cannot be left out. */
uint64_t peer_lookup(const struct rte_hash *hash, const uint8_t *keys, uint32_t count)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	void *data[RTE_HASH_LOOKUP_BULK_MAX];
	uint64_t hits, sum = 0;

	for (uint32_t i = 0; i < count; i++)
		pointers[i] = keys + 16 * i;
	rte_hash_lookup_bulk_data(hash, pointers, count, &hits, data);
	for (uint32_t i = 0; i < count; i++)
		if (hits & (1ULL << i))
			sum += (uintptr_t)data[i] & 0xffff;
	return sum;
}
