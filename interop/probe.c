/*
 * Probes on the kernel's own device: a prober and a responder for the packets of docs/probing.md, over
 * datagram queue pairs of libibverbs. Nothing of ours is in it.
 *
 *   probe responder -c COUNT [-k INTERFACE]
 *        answers so many probes and ends. It says {"qpn":N} when it is ready, and what it counted at the end
 *   probe prober -c COUNT -i MICROSECONDS [-k INTERFACE] [-q QPN -g GIDX] ADDRESS
 *        sends so many probes, one after the other: a line of JSON for each, then one that sums up, with the
 *        names that `ferroce ping --json` uses. Without -q, rdma_cm asks the host for its queue pair (SIDR)
 *
 * T2 to T5 are taken as soon as a completion is seen, as a prober on hardware would read the stamps of its
 * completions: rdma_rxe has none. A program that is not scheduled sees a completion late, and then T2 and T4
 * are later than the packets left; so a round trip can come out too short, or negative. With -k these four
 * are the times at which the packets passed the interface, as the kernel tells them to a packet socket; the
 * completions only say where to look. All times are on CLOCK_REALTIME: it is the clock of packet sockets,
 * and nothing sets it in the guest.
 *
 * An answer of the responder has neither flags nor ports, as in the rebuild in Go: the device chooses ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define QKEY 0x11111111
/* The name under which a card tells the queue pair of its responder. */
#define SERVICE 47920
#define ROCE_PORT 4791
#define UD_SEND_ONLY 0x64

#define GRH 40
#define LEN 40
/* A header and the longest datagram, so that no foreign one breaks the queue pair. */
#define SLOT (GRH + 4096)
/* More than a run has probes: a guest that stood still gets all of them at once. */
#define RECEIVES 512
#define SENDS 512
/* Room for the same packets in a packet socket, each of which may take up a page. */
#define TAP_BUFFER (4 << 20)
/* Probers that are answered. */
#define PEERS 64
/* Marks the number of a send. */
#define SEND (1 << 16)

#define SECOND 1000000000ull
/* Both wait so long for what does not come. */
#define PATIENCE (5 * SECOND)
/* So long for a time of a packet that has left. */
#define STAMP_WAIT_MS 50

enum kind { PROBE, ACK1, ACK2, KINDS };

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t *memory;
static int is_armed;

static void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fprintf(stderr, "probe: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	exit(1);
}

static void must(int good, const char *what)
{
	if (!good)
		fail("%s: %s", what, strerror(errno));
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

/* The packets: 40 bytes, numbers with their highest byte first. */

struct packet {
	enum kind kind;
	uint64_t sequence, t1, t3, t4;
};

static uint64_t number(const uint8_t *at)
{
	uint64_t n = 0;
	for (int i = 0; i < 8; i++)
		n = n << 8 | at[i];
	return n;
}

static void put(uint8_t *at, uint64_t n)
{
	for (int i = 7; i >= 0; i--, n >>= 8)
		at[i] = n;
}

static void emit(uint8_t *at, const struct packet *p)
{
	memset(at, 0, LEN);
	at[0] = 1;
	at[1] = p->kind != PROBE;
	at[2] = p->kind;
	put(at + 4, p->sequence);
	put(at + 12, p->t1);
	put(at + 20, p->t3);
	put(at + 28, p->t4);
}

static int parse(const uint8_t *at, size_t len, struct packet *p)
{
	if (len != LEN || at[0] != 1 || at[2] >= KINDS || at[1] != (at[2] != PROBE))
		return 0;
	*p = (struct packet){ at[2], number(at + 4), number(at + 12), number(at + 20), number(at + 28) };
	return 1;
}

/* The kernel's times: a packet socket sees every packet of the interface, and when it passed. */

static int tap = -1;
static uint64_t after_call;
static struct {
	uint64_t sequence, at;
} passed[SENDS][KINDS][2];

static void open_tap(const char *interface)
{
	struct sockaddr_ll name = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = if_nametoindex(interface) };
	int one = 1, room = TAP_BUFFER;
	must(name.sll_ifindex, interface);
	tap = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	must(tap >= 0 && !setsockopt(tap, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) &&
	     !setsockopt(tap, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) &&
	     !bind(tap, (struct sockaddr *)&name, sizeof name), "packet socket");
	/* The kernel begins to stamp a moment after it is asked to. */
	usleep(50000);
}

/* Where a datagram of RoCEv2 has its payload. */
static const uint8_t *payload(const uint8_t *ip, size_t len)
{
	size_t head = len > 40 && ip[0] >> 4 == 6 && ip[6] == IPPROTO_UDP ? 40
		: len > 20 && ip[0] >> 4 == 4 && ip[9] == IPPROTO_UDP ? (ip[0] & 15) * 4u : 0;
	const uint8_t *udp = ip + head;
	if (!head || len < head + 8 + 12 + 8 + LEN || (udp[2] << 8 | udp[3]) != ROCE_PORT || udp[8] != UD_SEND_ONLY)
		return NULL;
	return udp + 8 + 12 + 8;
}

static void drain(void)
{
	uint8_t bytes[256], control[64];
	struct sockaddr_ll from;
	struct packet p;

	for (;;) {
		struct iovec part = { bytes, sizeof bytes };
		struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
			.msg_control = control, .msg_controllen = sizeof control };
		ssize_t len = recvmsg(tap, &message, 0);
		if (len < 0) {
			must(errno == EAGAIN, "packet socket");
			return;
		}
		const uint8_t *at = payload(bytes, len);
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		if (!at || !parse(at, LEN, &p) || !c || c->cmsg_type != SCM_TIMESTAMPNS)
			continue;
		struct timespec t;
		memcpy(&t, CMSG_DATA(c), sizeof t);
		int left = from.sll_pkttype == PACKET_OUTGOING;
		passed[p.sequence % SENDS][p.kind][left].sequence = p.sequence;
		passed[p.sequence % SENDS][p.kind][left].at = t.tv_sec * SECOND + t.tv_nsec;
	}
}

/* When a packet came or left, whose completion was seen at `seen`. */
static uint64_t time_of(uint64_t sequence, enum kind kind, int left, uint64_t seen)
{
	struct pollfd readable = { .fd = tap, .events = POLLIN };
	if (tap < 0)
		return seen;
	do {
		drain();
		if (passed[sequence % SENDS][kind][left].sequence == sequence && passed[sequence % SENDS][kind][left].at)
			return passed[sequence % SENDS][kind][left].at;
	} while (poll(&readable, 1, STAMP_WAIT_MS) > 0);
	after_call++;
	return seen;
}

/* The queue pair. */

static void receive(uint64_t slot)
{
	struct ibv_sge s = { (uintptr_t)memory + slot * SLOT, SLOT, mr->lkey };
	struct ibv_recv_wr w = { .wr_id = slot, .sg_list = &s, .num_sge = 1 }, *bad;
	errno = ibv_post_recv(qp, &w, &bad);
	must(!errno, "receive");
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t len = RECEIVES * SLOT + SENDS * LEN;

	must(list && list[0] && (device = ibv_open_device(list[0])), "no device");
	must(!posix_memalign((void **)&memory, 4096, len), "memory");
	must((pd = ibv_alloc_pd(device)) && (channel = ibv_create_comp_channel(device)) &&
	     (cq = ibv_create_cq(device, RECEIVES + SENDS, NULL, channel, 0)) &&
	     (mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)), "domain, completion queue or region");
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { SENDS, RECEIVES, 1, 1, 0 } };
	must((qp = ibv_create_qp(pd, &init)) != NULL, "queue pair");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	must(!errno, "INIT");
	for (int slot = 0; slot < RECEIVES; slot++)
		receive(slot);
	a.qp_state = IBV_QPS_RTR;
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE);
	must(!errno, "RTR");
	a.qp_state = IBV_QPS_RTS;
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	must(!errno, "RTS");
}

static void post(unsigned slot, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, const struct packet *p)
{
	uint8_t *at = memory + RECEIVES * SLOT + slot * LEN;
	struct ibv_sge s = { (uintptr_t)at, LEN, mr->lkey };
	struct ibv_send_wr w = { .wr_id = SEND | slot, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	emit(at, p);
	w.wr.ud.ah = ah, w.wr.ud.remote_qpn = qpn, w.wr.ud.remote_qkey = qkey;
	errno = ibv_post_send(qp, &w, &bad);
	must(!errno, "send");
}

/* The next completion and when it was seen, or 0 if none comes until `end`. */
static uint64_t next(uint64_t end, struct ibv_wc *wc)
{
	for (;;) {
		int n = ibv_poll_cq(cq, 1, wc);
		uint64_t seen = now();
		must(n >= 0, "poll");
		if (n && wc->status)
			fail("a completion says: %s", ibv_wc_status_str(wc->status));
		if (n)
			return seen;
		if (seen >= end)
			return 0;
		if (!is_armed) {
			must(!ibv_req_notify_cq(cq, 0), "arming");
			is_armed = 1;
			/* Something may have come just before. */
			continue;
		}
		struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
		if (poll(&readable, 1, (end - seen) / 1000000 + 1) > 0) {
			struct ibv_cq *which;
			void *context;
			must(!ibv_get_cq_event(channel, &which, &context), "event");
			ibv_ack_cq_events(which, 1);
			is_armed = 0;
		}
	}
}

static int is_receive(const struct ibv_wc *wc)
{
	return wc->opcode & IBV_WC_RECV;
}

/* The header before what came: that of IPv6, or in its second half that of IPv4. */
static void source(const struct ibv_wc *wc, union ibv_gid *gid)
{
	const uint8_t *grh = memory + wc->wr_id * SLOT;
	if (grh[0] >> 4 == 6) {
		memcpy(gid->raw, grh + 8, 16);
		return;
	}
	memset(gid, 0, sizeof *gid);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, grh + 20 + 12, 4);
}

static int came(const struct ibv_wc *wc, struct packet *p)
{
	return wc->byte_len >= GRH && parse(memory + wc->wr_id * SLOT + GRH, wc->byte_len - GRH, p);
}

/* The responder. */

static struct answer {
	int is_taken;
	struct ibv_ah *ah;
	uint32_t qpn;
	struct packet packet;
} answers[SENDS];

/* The way back to the prober that sent it; made once for each. */
static struct ibv_ah *way_back(struct ibv_wc *wc)
{
	static struct {
		union ibv_gid gid;
		struct ibv_ah *ah;
	} known[PEERS];
	union ibv_gid gid;

	source(wc, &gid);
	for (int i = 0; i < PEERS; i++) {
		if (known[i].ah && !memcmp(&known[i].gid, &gid, sizeof gid))
			return known[i].ah;
		if (known[i].ah)
			continue;
		known[i].gid = gid;
		known[i].ah = ibv_create_ah_from_wc(pd, wc, (struct ibv_grh *)(memory + wc->wr_id * SLOT), 1);
		must(known[i].ah != NULL, "the way back");
		return known[i].ah;
	}
	return NULL;
}

static void respond(uint64_t count)
{
	uint64_t answered = 0, strange = 0, no_room = 0, seen;
	struct ibv_wc wc;
	struct packet p;

	printf("{\"qpn\":%u}\n", qp->qp_num);
	fflush(stdout);
	/* The first probe may take its time. */
	for (uint64_t wait = 4 * PATIENCE; answered < count && (seen = next(now() + wait, &wc)); wait = PATIENCE) {
		if (is_receive(&wc)) {
			unsigned slot = 0;
			struct ibv_ah *ah = NULL;
			int is_probe = came(&wc, &p) && p.kind == PROBE;
			while (slot < SENDS && answers[slot].is_taken)
				slot++;
			if (!is_probe)
				strange++;
			else if (slot == SENDS || !(ah = way_back(&wc)))
				no_room++;
			if (ah) {
				p.kind = ACK1, p.t3 = time_of(p.sequence, PROBE, 0, seen), p.t4 = 0;
				answers[slot] = (struct answer){ 1, ah, wc.src_qp, p };
				post(slot, ah, wc.src_qp, QKEY, &p);
			}
			receive(wc.wr_id);
			continue;
		}
		struct answer *a = &answers[wc.wr_id & ~SEND];
		if (a->packet.kind == ACK1) {
			a->packet.t4 = time_of(a->packet.sequence, ACK1, 1, seen), a->packet.kind = ACK2;
			post(wc.wr_id & ~SEND, a->ah, a->qpn, QKEY, &a->packet);
		} else {
			a->is_taken = 0;
			answered++;
		}
	}
	printf("{\"counters\":{\"answered\":%" PRIu64 ",\"strange\":%" PRIu64 ",\"no_room\":%" PRIu64
	       "},\"after_call\":%" PRIu64 "}\n", answered, strange, no_room, after_call);
	if (answered < count)
		fail("no more probes came for %d seconds", (int)(PATIENCE / SECOND));
}

/* The prober. */

struct target {
	struct ibv_ah_attr way;
	uint32_t qpn, qkey;
};

static void expect(struct rdma_event_channel *events, enum rdma_cm_event_type wanted, struct target *target)
{
	struct rdma_cm_event *event;
	must(!rdma_get_cm_event(events, &event), "rdma_cm");
	if (event->event != wanted)
		fail("%s, status %d, instead of %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
	if (target) {
		target->way = event->param.ud.ah_attr;
		target->qpn = event->param.ud.qp_num, target->qkey = event->param.ud.qkey;
	}
	rdma_ack_cm_event(event);
}

/* Asks the host for the queue pair of its responder. */
static void find(struct sockaddr *host, struct target *target)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_conn_param ask = { .qp_num = qp->qp_num };
	struct rdma_cm_id *id;

	must(events && !rdma_create_id(events, &id, NULL, RDMA_PS_UDP), "rdma_cm");
	must(!rdma_resolve_addr(id, NULL, host, 5000), "address");
	expect(events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	must(!rdma_resolve_route(id, 5000), "route");
	expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	must(!rdma_connect(id, &ask), "SIDR");
	expect(events, RDMA_CM_EVENT_ESTABLISHED, target);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(events);
}

static void point(const struct sockaddr *host, int gid_index, uint32_t qpn, struct target *target)
{
	*target = (struct target){ .qpn = qpn, .qkey = QKEY, .way = { .is_global = 1, .port_num = 1,
		.grh = { .sgid_index = gid_index, .hop_limit = 64 } } };
	uint8_t *gid = target->way.grh.dgid.raw;
	if (host->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)host)->sin6_addr, 16);
		return;
	}
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &((const struct sockaddr_in *)host)->sin_addr, 4);
}

/* How probes end; the same as ours, but for those that only a machine with timers tells apart. */
static const char *const OUTCOMES[] = { "ok", "ack2-lost", "ack1-lost", "time-out", "invalid" };
static const char *const COUNTERS[] = { "ok", "ack2_lost", "ack1_lost", "time_out", "invalid" };
enum { OK, ACK2_LOST, ACK1_LOST, TIME_OUT, INVALID, ENDS };

static void probe(const struct target *target, uint64_t count, unsigned pause)
{
	uint64_t ends[ENDS] = { 0 }, acks[KINDS] = { 0 }, strange = 0, sequence = 0;
	struct ibv_ah_attr way = target->way;
	struct ibv_ah *ah = ibv_create_ah(pd, &way);

	must(ah != NULL, "the way to the host");
	must(getrandom((uint8_t *)&sequence + 4, 4, 0) == 4, "an epoch");
	for (uint64_t i = 0; i < count; i++, sequence++) {
		uint64_t t[8] = { 0 }, seen;
		int echo_differs = 0, end;
		struct packet p = { .kind = PROBE, .sequence = sequence, .t1 = t[1] = now() };
		struct ibv_wc wc;

		post(i % SENDS, ah, target->qpn, target->qkey, &p);
		while (!(t[2] && t[5] && t[7]) && (seen = next(t[1] + PATIENCE, &wc))) {
			if (!is_receive(&wc)) {
				t[2] = time_of(sequence, PROBE, 1, seen);
				continue;
			}
			union ibv_gid from;
			source(&wc, &from);
			uint64_t *handled = &t[7];
			if (came(&wc, &p) && p.kind == ACK1)
				handled = &t[6];
			if (!came(&wc, &p) || p.kind == PROBE || p.sequence != sequence || wc.src_qp != target->qpn ||
			    memcmp(&from, &way.grh.dgid, sizeof from) || *handled) {
				strange++;
			} else {
				if (p.kind == ACK1)
					t[5] = time_of(sequence, ACK1, 0, seen);
				else
					t[4] = p.t4;
				echo_differs |= p.t1 != t[1] || (t[3] && t[3] != p.t3);
				t[3] = p.t3;
				*handled = now();
				acks[p.kind]++;
			}
			receive(wc.wr_id);
		}
		int64_t away = t[5] - t[2], responder = t[4] - t[3], prober = t[6] - t[1] - away;
		end = !t[6] && !t[7] ? TIME_OUT : !t[6] ? ACK1_LOST : !t[7] ? ACK2_LOST
			: echo_differs || !t[2] || responder < 0 || away < responder || prober < 0 ? INVALID : OK;
		ends[end]++;
		printf("{\"probe\":%" PRIu64 ",\"outcome\":\"%s\"", i + 1, OUTCOMES[end]);
		for (int n = 1; n < 8; n++)
			printf(",\"t%d\":%" PRIu64, n, t[n]);
		printf(",\"round_trip_ns\":%" PRId64 ",\"responder_ns\":%" PRId64 ",\"prober_ns\":%" PRId64 "}\n",
		       away - responder, responder, prober);
		usleep(pause);
	}
	printf("{\"summary\":{\"qpn\":%u,\"probes\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"outcomes\":{", target->qpn, count,
	       ends[TIME_OUT] + ends[ACK1_LOST]);
	for (int end = 0; end < ENDS; end++)
		printf("%s\"%s\":%" PRIu64, end ? "," : "", COUNTERS[end], ends[end]);
	printf("},\"counters\":{\"probes\":%" PRIu64 ",\"first_acks\":%" PRIu64 ",\"second_acks\":%" PRIu64
	       ",\"strange\":%" PRIu64 "},\"after_call\":%" PRIu64 "}}\n", count, acks[ACK1], acks[ACK2], strange,
	       after_call);
}

int main(int argc, char **argv)
{
	uint64_t count = 0;
	unsigned pause = 0, gid_index = 0, qpn = 0;
	int option, is_responder = argc > 1 && !strcmp(argv[1], "responder");

	if (!is_responder && !(argc > 1 && !strcmp(argv[1], "prober")))
		fail("probe responder|prober; the head of probe.c says how");
	optind = 2;
	while ((option = getopt(argc, argv, "c:g:i:k:q:")) != -1)
		switch (option) {
		case 'c':
			count = strtoull(optarg, NULL, 0);
			break;
		case 'g':
			gid_index = strtoul(optarg, NULL, 0);
			break;
		case 'i':
			pause = strtoul(optarg, NULL, 0);
			break;
		case 'k':
			open_tap(optarg);
			break;
		case 'q':
			qpn = strtoul(optarg, NULL, 0);
			break;
		default:
			return 2;
		}
	open_device();
	if (is_responder) {
		respond(count);
		return 0;
	}
	struct addrinfo hint = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM }, *host;
	struct target target;
	char port[8];
	sprintf(port, "%d", SERVICE);
	if (optind != argc - 1 || getaddrinfo(argv[optind], port, &hint, &host))
		fail("one address to probe");
	if (qpn)
		point(host->ai_addr, gid_index, qpn, &target);
	else
		find(host->ai_addr, &target);
	probe(&target, count, pause);
	return 0;
}
