/* DPDK's hash table as a peer: 16-byte keys, 8-byte data, the default CRC hash function, bulk look-ups. */
#include <stdint.h>
#include <stdio.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>

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

/* Looks up at most 64 keys; returns which were found. */
uint64_t peer_lookup(const struct rte_hash *hash, const uint8_t *keys, uint32_t count, uint64_t *data)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	uint64_t hits = 0;

	for (uint32_t i = 0; i < count; i++)
		pointers[i] = keys + 16 * i;
	rte_hash_lookup_bulk_data(hash, pointers, count, &hits, (void **)data);
	return hits;
}
