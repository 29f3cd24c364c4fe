/* The few DPDK calls the forwarder makes, as plain functions: most of DPDK's interface is inline
 * functions and macros that only C can use. One call serves a whole burst. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

/* mbuf.rs reads these fields itself. */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "buf_addr");
_Static_assert(offsetof(struct rte_mbuf, data_off) == 16, "data_off");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "nb_segs");
_Static_assert(offsetof(struct rte_mbuf, ol_flags) == 24, "ol_flags");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "pkt_len");
_Static_assert(offsetof(struct rte_mbuf, data_len) == 40, "data_len");
_Static_assert(offsetof(struct rte_mbuf, vlan_tci) == 42, "vlan_tci");
_Static_assert(offsetof(struct rte_mbuf, hash.usr) == 44, "hash.usr");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == 54, "buf_len");
_Static_assert(RTE_MBUF_F_RX_VLAN_STRIPPED == 1ULL << 6, "RTE_MBUF_F_RX_VLAN_STRIPPED");
_Static_assert(RTE_MBUF_F_TX_TCP_SEG == 1ULL << 50, "RTE_MBUF_F_TX_TCP_SEG");

/* Where the processor does not tell how fast its counter runs, DPDK counts while it sleeps for 100 ms, and rounds what it has
 * counted to 10 MHz. A tenth of that time tells as much, and a forwarder that was killed is back sooner. DPDK has no option for it. */
#define CALIBRATION_NS 100000000L
static _Thread_local int starting;

/* Takes the place of the system library's function in the whole process, and is the same for all but a thread that starts DPDK. */
int nanosleep(const struct timespec *wanted, struct timespec *left) {
	struct timespec shorter = {.tv_nsec = CALIBRATION_NS / 10};
	int calibrates = starting && wanted->tv_sec == 0 && wanted->tv_nsec == CALIBRATION_NS;
	int error = clock_nanosleep(CLOCK_MONOTONIC, 0, calibrates ? &shorter : wanted, left);

	if (error == 0)
		return 0;
	errno = error;
	return -1;
}

int sb_eal_init(int argc, char **argv) {
	int result;

	starting = 1;
	result = rte_eal_init(argc, argv);
	starting = 0;
	return result < 0 ? -rte_errno : 0;
}

uint64_t sb_counter_hz(void) {
	return rte_get_tsc_hz();
}

int sb_eal_cleanup(void) {
	return rte_eal_cleanup();
}

/* Takes a pool's last buffers out of it, so that the rest lie in as many bytes as they would have without gaps: AF_XDP's driver shows the
 * kernel no more, from the first one's, and the kernel sends nothing from elsewhere. There are gaps at the ends of pages where there are huge ones.
 * -ENOMEM where they lie in several pieces of memory, as in a memory that is nearly full. */
static int leave_out_last(struct rte_mempool *pool) {
	const char *start = STAILQ_FIRST(&pool->mem_list)->addr;
	const char *end = start + (size_t)pool->populated_size * (pool->header_size + pool->elt_size + pool->trailer_size);
	void **buffers = malloc(pool->populated_size * sizeof(*buffers));
	unsigned number, stay = 0;

	if (buffers == NULL)
		return -ENOMEM;
	/* Past the calling thread's cache, both ways: it would keep some. */
	if (rte_mempool_generic_get(pool, buffers, pool->populated_size, NULL) == 0)
		for (number = 0; number < pool->populated_size; number++) {
			const char *buffer = buffers[number];
			if (buffer >= start && buffer + pool->elt_size + pool->trailer_size <= end)
				buffers[stay++] = buffers[number];
		}
	rte_mempool_generic_put(pool, buffers, stay, NULL);
	free(buffers);
	return stay < pool->populated_size - pool->populated_size / 16 ? -ENOMEM : 0;
}

struct rte_mempool *sb_pool_create(const char *name, unsigned count, uint16_t data_room, unsigned threads) {
	/* What a cache has: it takes half as many again before it gives some back, and a pool must not end up in those of all threads, the main one
	 * among them. */
	unsigned kept = RTE_MIN(256u, count / (4 * (threads + 1)));
	/* Only cards need buffers that no page ends in, and they need huge pages. Small pages would hold one buffer each. */
	unsigned flags = rte_eal_has_hugepages() ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	struct rte_pktmbuf_pool_private room = {.mbuf_data_room_size = data_room};
	struct rte_mempool *pool = rte_mempool_create_empty(name, count, sizeof(struct rte_mbuf) + data_room, kept, sizeof(room),
							    rte_socket_id(), flags);

	if (pool == NULL)
		return NULL;
	rte_pktmbuf_pool_init(pool, &room);
	if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL) != 0 || rte_mempool_populate_default(pool) < 0 ||
	    leave_out_last(pool) != 0) {
		rte_mempool_free(pool);
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* Buffers that are in no thread's cache either. */
unsigned sb_pool_common(const struct rte_mempool *pool) {
	unsigned count = rte_mempool_avail_count(pool), thread;

	for (thread = 0; pool->local_cache && thread < RTE_MAX_LCORE; thread++)
		count -= RTE_MIN(count, pool->local_cache[thread].len);
	return count;
}

unsigned sb_pool_available(const struct rte_mempool *pool) {
	return rte_mempool_avail_count(pool);
}

struct rte_mbuf *sb_mbuf_alloc(struct rte_mempool *pool) {
	return rte_pktmbuf_alloc(pool);
}

void sb_mbuf_free(struct rte_mbuf *mbuf) {
	rte_pktmbuf_free(mbuf);
}

/* Makes a chain of segments one; -1 when the first has no room. */
int sb_mbuf_linearize(struct rte_mbuf *mbuf) {
	return rte_pktmbuf_linearize(mbuf);
}

/* What receive side scaling may read: addresses and ports, outer ones. */
#define SPREAD_BY (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP)
/* The longest hash key of a device. */
#define KEY_LIMIT 64

/* Has the device spread packets over `queues` queues by a hash that is the same for both directions of a connection: a
 * Toeplitz hash whose key repeats itself every 16 bits (Woo and Park, "Scalable TCP session monitoring with symmetric
 * receive-side scaling"). Returns how many queues it can have then; 1 when it does not spread. */
static uint16_t spread(uint16_t port, uint16_t queues, struct rte_eth_conf *configuration, uint8_t key[KEY_LIMIT]) {
	struct rte_eth_dev_info info;
	uint16_t limit;
	int i;

	if (queues < 2 || rte_eth_dev_info_get(port, &info) != 0)
		return 1;
	limit = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	if (limit < 2 || (info.flow_type_rss_offloads & SPREAD_BY) == 0 || info.hash_key_size > KEY_LIMIT)
		return 1;
	for (i = 0; i < KEY_LIMIT; i += 2) {
		key[i] = 0x6d;
		key[i + 1] = 0x5a;
	}
	configuration->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	configuration->rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & SPREAD_BY;
	if (info.hash_key_size > 0) {
		configuration->rx_adv_conf.rss_conf.rss_key = key;
		configuration->rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
	}
	return RTE_MIN(queues, limit);
}

/* What a port has to spread packets by: the length of its key in bytes, the entries of its indirection table, and whether it reads UDP's
 * ports over IPv4 (1) and over IPv6 (2); -ENOTSUP when that cannot be set. */
int sb_port_spreading(uint16_t port, uint16_t *key_length, uint16_t *entries, uint8_t *udp) {
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	if (error)
		return error;
	if ((info.flow_type_rss_offloads & SPREAD_BY) == 0 || info.reta_size == 0)
		return -ENOTSUP;
	*udp = (info.flow_type_rss_offloads & RTE_ETH_RSS_NONFRAG_IPV4_UDP ? 1 : 0) |
	       (info.flow_type_rss_offloads & RTE_ETH_RSS_NONFRAG_IPV6_UDP ? 2 : 0);
	*key_length = info.hash_key_size ? info.hash_key_size : 40;
	*entries = info.reta_size;
	return *key_length > KEY_LIMIT ? -ENOTSUP : 0;
}

/* Has a port spread packets by a key of sb_port_spreading's length, to the queues that a table of its entries names. */
int sb_port_spread_by(uint16_t port, uint8_t *key, const uint16_t *queues) {
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_rss_conf hash;
	struct rte_eth_dev_info info;
	uint16_t key_length, entries, entry;
	uint8_t udp;
	int error = sb_port_spreading(port, &key_length, &entries, &udp);

	if (error)
		return error;
	if (entries > RTE_ETH_RSS_RETA_SIZE_512)
		return -ENOTSUP;
	error = rte_eth_dev_info_get(port, &info);
	if (error)
		return error;
	memset(table, 0, sizeof(table));
	for (entry = 0; entry < entries; entry++) {
		table[entry / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ULL << (entry % RTE_ETH_RETA_GROUP_SIZE);
		table[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE] = queues[entry];
	}
	error = rte_eth_dev_rss_reta_update(port, table, entries);
	if (error)
		return error;
	memset(&hash, 0, sizeof(hash));
	hash.rss_key = key;
	hash.rss_key_len = key_length;
	hash.rss_hf = info.flow_type_rss_offloads & SPREAD_BY;
	return rte_eth_dev_rss_hash_update(port, &hash);
}

/* Each queue receives into the pool of its number; one alone into that of `alone`. */
static int start(uint16_t port, struct rte_mempool *const *pools, uint16_t alone, uint16_t queues, uint16_t descriptors,
		 const struct rte_eth_conf *configuration) {
	uint16_t receive = descriptors, transmit = descriptors;
	uint16_t queue;
	int error;

	error = rte_eth_dev_configure(port, queues, queues, configuration);
	if (error)
		return error;
	error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
	if (error)
		return error;
	for (queue = 0; queue < queues; queue++) {
		error = rte_eth_rx_queue_setup(port, queue, receive, rte_socket_id(), NULL,
					       pools[queues == 1 ? alone : queue]);
		if (error)
			return error;
		error = rte_eth_tx_queue_setup(port, queue, transmit, rte_socket_id(), NULL);
		if (error)
			return error;
	}
	error = rte_eth_dev_start(port);
	if (error)
		return error;
	/* Some devices have no such mode and need none. */
	rte_eth_promiscuous_enable(port);
	return 0;
}

/* The first port of the device that devargs name, which may write its address in more than one way. */
static int port_of(const char *devargs, uint16_t *port) {
	struct rte_dev_iterator iterator;

	RTE_ETH_FOREACH_MATCHING_DEV(*port, devargs, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		return 0;
	}
	return -ENODEV;
}

/* What devices count beside the packet: Ethernet's header and checksum, VLAN tags, virtio's header. */
#define LINK_LAYER_ROOM 64

/* The longest packet that fits one of the pool's buffers and the device's frames. */
static uint32_t longest(uint16_t port, struct rte_mempool *pool) {
	struct rte_eth_dev_info info;
	uint32_t fits = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM - LINK_LAYER_ROOM;

	if (rte_eth_dev_info_get(port, &info) != 0)
		return 0;
	fits = RTE_MIN(fits, info.max_mtu);
	/* Some say how long a packet may be, some how long a frame, and some the same of both. */
	if (info.max_rx_pktlen < fits + LINK_LAYER_ROOM)
		fits = RTE_MIN(fits, (uint32_t)RTE_ETHER_MTU);
	return fits;
}

/* Probes a device and starts it with `*queues` queues, or, if `spreading`, with as many of these as it spreads packets
 * over by itself, which it says there. There is a pool for each, with buffers of one size; `alone` is the number of the one for a
 * queue that is the only one. */
int sb_port_open(const char *devargs, struct rte_mempool *const *pools, uint16_t alone, int spreading, uint16_t *queues,
		 uint16_t descriptors, uint16_t *port) {
	struct rte_eth_conf configuration;
	uint8_t key[KEY_LIMIT];
	int error = rte_dev_probe(devargs);
	if (error)
		return error;
	error = port_of(devargs, port);
	if (error)
		return error;
	memset(&configuration, 0, sizeof(configuration));
	configuration.rxmode.mtu = longest(*port, pools[0]);
	if (spreading)
		*queues = spread(*port, *queues, &configuration, key);
	error = start(*port, pools, alone, *queues, descriptors, &configuration);
	if (error) {
		struct rte_eth_dev_info info;
		if (rte_eth_dev_info_get(*port, &info) == 0 && info.device) {
			rte_eth_dev_close(*port);
			rte_dev_remove(info.device);
		}
	}
	return error;
}

int sb_port_close(uint16_t port) {
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);
	if (error)
		return error;
	rte_eth_dev_stop(port);
	error = rte_eth_dev_close(port);
	if (info.device)
		rte_dev_remove(info.device);
	return error;
}

/* Packets that the device dropped since it started because nobody had taken earlier ones out of its ring. */
uint64_t sb_port_missed(uint16_t port) {
	struct rte_eth_stats stats;
	return rte_eth_stats_get(port, &stats) ? 0 : stats.imissed;
}

/* Whether the device has a link; also where it cannot tell. */
int sb_port_carrier(uint16_t port) {
	struct rte_eth_link link;
	return rte_eth_link_get_nowait(port, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

int sb_port_mac(uint16_t port, uint8_t mac[6]) {
	struct rte_ether_addr address;
	int error = rte_eth_macaddr_get(port, &address);
	if (error == 0)
		memcpy(mac, address.addr_bytes, 6);
	return error;
}

/* The driver's name, which stays where it is; NULL where the device says nothing. */
const char *sb_port_driver(uint16_t port) {
	struct rte_eth_dev_info info;
	return rte_eth_dev_info_get(port, &info) == 0 ? info.driver_name : NULL;
}

uint16_t sb_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count) {
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

/* Sends what the device takes; the rest stays the caller's. */
uint16_t sb_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count) {
	return rte_eth_tx_burst(port, queue, mbufs, count);
}
