/*
 * The far side of the interoperability tests: libibverbs on the kernel's own device, told by lines of text
 * over TCP what to do. It knows nothing of the tests; what must come out is decided by who asks.
 *
 *   peer [PORT]          serves every connection in a process of its own (18600)
 *
 * Each line is a command with words between spaces; each is answered by one line, which is "error ..." if it
 * failed. Numbers are as strtoull reads them (0x for hexadecimal).
 *
 *   run COMMAND                          a shell command: its output, each line after "| ", then "exit STATUS"
 *   qp rc|uc|ud GIDX LEN RETRY TIMEOUT   a queue pair and LEN bytes of registered memory:
 *                                        "qp QPN PSN GID RKEY ADDRESS"
 *   connect QPN PSN GID MTU              to RTS; for ud the address handle too
 *   fill OFFSET LEN SEED                 the test pattern into our memory
 *   sum OFFSET LEN                       "sum CRC32"
 *   word OFFSET [VALUE]                  "word VALUE": eight bytes as a number of this machine; first set if given
 *   recv ID OFFSET LEN                   posts a receive
 *   post ID OP OFFSET LEN [REMOTE RKEY [A [B]]]
 *        OP: send send_imm send_inv local_inv write write_imm read cas faa; A: immediate, key, compare or addend; B: swap.
 *        For ud REMOTE is the queue pair's number and RKEY the Q_Key.
 *   wait MILLISECONDS                    "wc ID STATUS OPCODE LEN FLAGS IMM-OR-KEY SOURCE-QPN", or "none"
 *   window OFFSET LEN                    binds a type 2 memory window: "window RKEY"
 *   state                                "state N", as enum ibv_qp_state
 *   counter FILE                         "counter N": what a file of the kernel says, and has not said before
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define QKEY 0x11111111
#define DEPTH 256
#define WORDS 10

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct ibv_mw *mw;
static uint8_t *memory;
static size_t memory_len;
static int gid_index, retry_count, timeout;
static uint32_t first_psn;

static int answer(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	return fflush(stdout);
}

static int failed(const char *what, int error)
{
	return answer("error %s: %s", what, strerror(error));
}

static uint32_t crc32_of(const uint8_t *bytes, size_t len)
{
	static uint32_t table[256];
	uint32_t crc = ~0u;
	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;
			for (int k = 0; k < 8; k++)
				c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
			table[i] = c;
		}
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *bytes++) & 0xff];
	return ~crc;
}

/* A word of a linear congruential generator for each eight bytes: fast, and no two places look alike. */
static void pattern(uint8_t *at, size_t len, uint64_t seed)
{
	uint64_t state = seed;
	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			state = state * 6364136223846793005u + 1442695040888963407u;
		at[i] = state >> (8 * (i % 8));
	}
}

static int inside(uint64_t offset, uint64_t len)
{
	return offset <= memory_len && len <= memory_len - offset;
}

static void run(const char *command)
{
	char line[8192];
	/* Its input is not ours, and what it complains about belongs to its output. */
	snprintf(line, sizeof line, "{ %s\n} </dev/null 2>&1", command);
	FILE *out = popen(line, "r");
	if (!out) {
		failed("popen", errno);
		return;
	}
	while (fgets(line, sizeof line, out)) {
		line[strcspn(line, "\n")] = 0;
		printf("| %s\n", line);
		fflush(stdout);
	}
	int status = pclose(out);
	answer("exit %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static int make(const char *type, size_t len)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	enum ibv_qp_type kind = !strcmp(type, "ud") ? IBV_QPT_UD : !strcmp(type, "uc") ? IBV_QPT_UC : IBV_QPT_RC;
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid gid;
	char text[33];

	if (qp)
		return answer("error this connection has a queue pair already: open another one");
	if (!list || !list[0] || !(device = ibv_open_device(list[0])))
		return failed("no device", errno);
	memory_len = len;
	if (posix_memalign((void **)&memory, 4096, len + 4096))
		return failed("memory", errno);
	memset(memory, 0, len + 4096);
	if (!(pd = ibv_alloc_pd(device)) || !(cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0)) ||
	    !(mr = ibv_reg_mr(pd, memory, len + 4096, all)))
		return failed("domain, completion queue or region", errno);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = kind, .sq_sig_all = 1,
		.cap = { DEPTH, DEPTH, 1, 1, 0 } };
	if (!(qp = ibv_create_qp(pd, &init)))
		return failed("queue pair", errno);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
		.qp_access_flags = kind == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : all & ~IBV_ACCESS_MW_BIND };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int error = ibv_modify_qp(qp, &a, mask | (kind == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (error)
		return failed("INIT", error);
	if (ibv_query_gid(device, 1, gid_index, &gid))
		return failed("GID", errno);
	for (int i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", gid.raw[i]);
	first_psn = (qp->qp_num * 7919u + (uint32_t)getpid()) & 0xffffff;
	return answer("qp 0x%x 0x%x %s 0x%x 0x%" PRIx64, qp->qp_num, first_psn, text, mr->rkey,
		      (uint64_t)(uintptr_t)memory);
}

static int join(uint32_t qpn, uint32_t psn, const char *gid, int bytes)
{
	enum ibv_mtu mtu = bytes == 4096 ? IBV_MTU_4096 : bytes == 2048 ? IBV_MTU_2048 : bytes == 512 ? IBV_MTU_512
		: bytes == 256 ? IBV_MTU_256 : IBV_MTU_1024;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = qpn, .rq_psn = psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } } };
	int error, mask = IBV_QP_STATE;

	for (int i = 0; i < 16; i++) {
		unsigned byte;
		if (sscanf(gid + 2 * i, "%2x", &byte) != 1)
			return answer("error the GID has not 32 digits");
		a.ah_attr.grh.dgid.raw[i] = byte;
	}
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if ((error = ibv_modify_qp(qp, &a, mask)))
		return failed("RTR", error);
	if (qp->qp_type == IBV_QPT_UD && !(ah = ibv_create_ah(pd, &a.ah_attr)))
		return failed("address handle", errno);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = first_psn, .timeout = timeout,
		.retry_cnt = retry_count, .rnr_retry = 7, .max_rd_atomic = 16 };
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if ((error = ibv_modify_qp(qp, &a, mask)))
		return failed("RTS", error);
	return answer("ok");
}

static int post(uint64_t id, const char *name, uint64_t offset, uint32_t len, uint64_t remote, uint32_t key,
		uint64_t a, uint64_t b)
{
	struct ibv_sge s = { (uintptr_t)memory + offset, len, mr->lkey };
	struct ibv_send_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (!inside(offset, len))
		return answer("error not inside our memory");
	w.wr.rdma.remote_addr = remote;
	w.wr.rdma.rkey = key;
	if (!strcmp(name, "send"))
		w.opcode = IBV_WR_SEND;
	else if (!strcmp(name, "send_imm"))
		w.opcode = IBV_WR_SEND_WITH_IMM, w.imm_data = htonl(a);
	else if (!strcmp(name, "send_inv"))
		w.opcode = IBV_WR_SEND_WITH_INV, w.invalidate_rkey = a;
	else if (!strcmp(name, "local_inv"))
		w.opcode = IBV_WR_LOCAL_INV, w.invalidate_rkey = a, w.num_sge = 0;
	else if (!strcmp(name, "write"))
		w.opcode = IBV_WR_RDMA_WRITE;
	else if (!strcmp(name, "write_imm"))
		w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, w.imm_data = htonl(a);
	else if (!strcmp(name, "read"))
		w.opcode = IBV_WR_RDMA_READ;
	else if (!strcmp(name, "cas") || !strcmp(name, "faa")) {
		w.opcode = name[0] == 'c' ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
		w.wr.atomic.remote_addr = remote;
		w.wr.atomic.rkey = key;
		w.wr.atomic.compare_add = a;
		w.wr.atomic.swap = b;
	} else
		return answer("error no operation %s", name);
	if (qp->qp_type == IBV_QPT_UD)
		w.wr.ud.ah = ah, w.wr.ud.remote_qpn = remote, w.wr.ud.remote_qkey = key;
	int error = ibv_post_send(qp, &w, &bad);
	return error ? failed("post", error) : answer("ok");
}

static int receive(uint64_t id, uint64_t offset, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)memory + offset, len, mr->lkey };
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;
	if (!inside(offset, len))
		return answer("error not inside our memory");
	int error = ibv_post_recv(qp, &w, &bad);
	return error ? failed("post", error) : answer("ok");
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Polls, and steps back for the kernel's own work in between: the guest has one processor. */
static int next(double limit, struct ibv_wc *wc)
{
	double end = seconds() + limit;
	for (;;) {
		int n = ibv_poll_cq(cq, 1, wc);
		if (n)
			return n;
		if (seconds() > end)
			return 0;
		usleep(200);
	}
}

static int await(double limit)
{
	struct ibv_wc wc;
	int n = next(limit, &wc);
	if (n < 0)
		return failed("poll", errno);
	if (!n)
		return answer("none");
	/* rdma_rxe marks an invalidated key with the kernel's own flag, which here means a checked checksum. */
	uint32_t extra = wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data)
		: wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK) ? wc.invalidated_rkey : 0;
	return answer("wc %" PRIu64 " %d %d %u %d 0x%x 0x%x", wc.wr_id, wc.status, wc.opcode, wc.byte_len,
		      wc.wc_flags, extra, wc.src_qp);
}

static int window(uint64_t offset, uint64_t len)
{
	struct ibv_wc wc;
	if (!inside(offset, len))
		return answer("error not inside our memory");
	if (!mw && !(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		return failed("memory window", errno);
	struct ibv_send_wr w = { .wr_id = 0x33, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	w.bind_mw.mw = mw;
	w.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	w.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory + offset, len,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	int error = ibv_post_send(qp, &w, &bad);
	if (error)
		return failed("bind", error);
	if (next(5, &wc) < 1 || wc.status)
		return answer("error the window was not bound");
	mw->rkey = w.bind_mw.rkey;
	return answer("window 0x%x", mw->rkey);
}

static int counter(const char *name)
{
	uint64_t value;
	/* Whoever asks twice in the same tick of the kernel's clock hears the same. */
	usleep(8000);
	FILE *file = fopen(name, "r");
	int found = file && fscanf(file, "%" SCNu64, &value) == 1;
	if (file)
		fclose(file);
	return found ? answer("counter %" PRIu64, value) : answer("error no number in %s", name);
}

static int obey(char *line)
{
	char *word[WORDS], *rest;
	uint64_t n[WORDS] = { 0 };
	int count = 0;

	if (!strncmp(line, "run ", 4)) {
		run(line + 4);
		return 0;
	}
	for (char *w = strtok_r(line, " ", &rest); w && count < WORDS; w = strtok_r(NULL, " ", &rest)) {
		n[count] = strtoull(w, NULL, 0);
		word[count++] = w;
	}
	if (!count)
		return 0;
	const char *verb = word[0];
	if (!strcmp(verb, "counter") && count == 2)
		return counter(word[1]);
	if (!strcmp(verb, "qp") && count == 6) {
		gid_index = n[2], retry_count = n[4], timeout = n[5];
		return make(word[1], n[3]);
	}
	if (!qp)
		return answer("error no queue pair yet, or no such command: %s", verb);
	if (!strcmp(verb, "connect") && count == 5)
		return join(n[1], n[2], word[3], n[4]);
	if (!strcmp(verb, "recv") && count == 4)
		return receive(n[1], n[2], n[3]);
	if (!strcmp(verb, "post") && count >= 5)
		return post(n[1], word[2], n[3], n[4], n[5], n[6], n[7], n[8]);
	if (!strcmp(verb, "wait") && count == 2)
		return await(n[1] / 1000.0);
	if (!strcmp(verb, "window") && count == 3)
		return window(n[1], n[2]);
	if (!strcmp(verb, "state")) {
		struct ibv_qp_attr a;
		struct ibv_qp_init_attr i;
		int error = ibv_query_qp(qp, &a, IBV_QP_STATE, &i);
		return error ? failed("query", error) : answer("state %d", a.qp_state);
	}
	if (!strcmp(verb, "fill") && count == 4 && inside(n[1], n[2])) {
		pattern(memory + n[1], n[2], n[3]);
		return answer("ok");
	}
	if (!strcmp(verb, "sum") && count == 3 && inside(n[1], n[2]))
		return answer("sum 0x%x", crc32_of(memory + n[1], n[2]));
	if (!strcmp(verb, "word") && count >= 2 && inside(n[1], 8)) {
		if (count > 2)
			memcpy(memory + n[1], &n[2], 8);
		memcpy(&n[2], memory + n[1], 8);
		return answer("word 0x%" PRIx64, n[2]);
	}
	return answer("error no such command, or not inside our memory: %s", verb);
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(argc > 1 ? atoi(argv[1]) : 18600) };
	int one = 1, s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), c;
	char line[4096];

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (s < 0 || bind(s, (struct sockaddr *)&any, sizeof any) || listen(s, 8)) {
		perror("peer");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	/* Who started us goes on when we listen. */
	if (argc > 2 && daemon(0, 1))
		return 1;
	while ((c = accept(s, NULL, NULL)) >= 0) {
		if (fork()) {
			close(c);
			continue;
		}
		signal(SIGCHLD, SIG_DFL);
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		dup2(c, 0);
		dup2(c, 1);
		dup2(c, 2);
		close(c);
		while (fgets(line, sizeof line, stdin)) {
			line[strcspn(line, "\r\n")] = 0;
			obey(line);
		}
		_exit(0);
	}
	return 1;
}
