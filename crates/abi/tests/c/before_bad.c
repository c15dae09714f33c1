/* Everything before bad_wr is posted, whatever is wrong with the one that it names, and nothing behind it. The
 * argument says of which list: sends, receives or shared. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 20
/* More than fits where a gather list of two pieces would be: that much every queue takes. */
#define INLINE 48
#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d, %s, bad is %d: not %s (errno %d)\n", __LINE__, names[mistake], bad_at, #what, errno);   \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

/* What a request can be refused for: here by the library, which reads the list, or by the device behind it. */
enum { NEGATIVE, NOWHERE, BEYOND_ALL, BEYOND_QUEUE, OPCODE, INLINE_TOO_LONG, MISTAKES };
static const char *names[] = {"a negative count", "pieces nowhere", "more pieces than any queue takes",
                              "more pieces than this queue takes", "no such opcode", "too much inline"};
static int mistake, bad_at;

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char memory[4096];
static struct ibv_sge pieces[40];

static struct ibv_qp *queue_pair(struct ibv_srq *shared) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = shared, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){.max_send_wr = MOST, .max_recv_wr = shared ? 0 : MOST, .max_send_sge = 2,
                                   .max_recv_sge = shared ? 0 : 2, .max_inline_data = INLINE};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
                             .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(!ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The pieces of a request that is refused for this. */
static int count_of(struct ibv_sge **list) {
    *list = mistake == NOWHERE ? NULL : pieces;
    return mistake == NEGATIVE ? -1 : mistake == BEYOND_ALL ? 33 : mistake == BEYOND_QUEUE ? 3 : 1;
}

/* The next completion. What was not posted never completes, and then nothing is waited for any longer. */
static struct ibv_wc next(void) {
    time_t end = time(NULL) + 20;
    struct ibv_wc wc;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) < end);
    CHECK(n == 1);
    return wc;
}

/* The next completions have these numbers, in order, and then there is none. */
static void expect(int status, int count) {
    struct ibv_wc wc;
    for (int i = 0; i < count; i++) {
        wc = next();
        CHECK((int)wc.status == status && wc.wr_id == (unsigned)i);
    }
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

/* Ends a queue pair, which tells what was posted to it. */
static void end(struct ibv_qp *qp, int count) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
    expect(IBV_WC_WR_FLUSH_ERR, count);
}

/* A list of requests of which one is wrong, and two behind it. */
static int sends(struct ibv_qp *qp, int plain_inline) {
    struct ibv_send_wr list[MOST], *bad = NULL;
    memset(list, 0, sizeof list);
    for (int i = 0; i < bad_at + 3; i++)
        list[i] = (struct ibv_send_wr){.wr_id = i, .sg_list = pieces, .num_sge = 1, .opcode = IBV_WR_SEND,
                                       .next = i < bad_at + 2 ? &list[i + 1] : NULL,
                                       .send_flags = plain_inline ? IBV_SEND_INLINE : 0};
    struct ibv_send_wr *wrong = &list[bad_at];
    wrong->num_sge = count_of(&wrong->sg_list);
    if (mistake == OPCODE)
        wrong->opcode = 99;
    if (mistake == INLINE_TOO_LONG) {
        wrong->send_flags = IBV_SEND_INLINE;
        wrong->sg_list = &(struct ibv_sge){(uintptr_t)memory, INLINE + 1, mr->lkey};
    }
    CHECK(ibv_post_send(qp, list, &bad) == EINVAL);
    CHECK(bad == wrong);
    return bad_at;
}

static int receives(struct ibv_qp *qp) {
    struct ibv_recv_wr list[MOST], *bad = NULL;
    for (int i = 0; i < bad_at + 3; i++)
        list[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = pieces, .num_sge = 1,
                                       .next = i < bad_at + 2 ? &list[i + 1] : NULL};
    struct ibv_recv_wr *wrong = &list[bad_at];
    wrong->num_sge = count_of(&wrong->sg_list);
    CHECK((qp ? ibv_post_recv(qp, list, &bad) : ibv_post_srq_recv(srq, list, &bad)) == EINVAL);
    CHECK(bad == wrong);
    return bad_at;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0] && (ctx = ibv_open_device(devices[0])));
    CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 4 * MOST, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
    for (int i = 0; i < 40; i++)
        pieces[i] = (struct ibv_sge){(uintptr_t)memory, 8, mr->lkey};
    /* The third of three, the first of all, and one that comes after several batches of whatever size. */
    int places[] = {2, 0, 7, 8, 9, MOST - 3}, cases = 0;
    for (mistake = 0; mistake < MISTAKES; mistake++) {
        for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
            bad_at = places[i];
            if (!strcmp(what, "sends")) {
                for (int plain_inline = 0; plain_inline < 2; plain_inline++) {
                    /* Its peer takes no message, so they stay until the end. */
                    struct ibv_qp *ours = queue_pair(NULL), *theirs = queue_pair(NULL);
                    join(ours, theirs);
                    join(theirs, ours);
                    end(ours, sends(ours, plain_inline));
                    CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs));
                    cases++;
                }
            } else if (!strcmp(what, "receives") && mistake < OPCODE) {
                struct ibv_qp *ours = queue_pair(NULL);
                join(ours, ours);
                end(ours, receives(ours));
                CHECK(!ibv_destroy_qp(ours));
                cases++;
            } else if (!strcmp(what, "shared") && mistake < OPCODE) {
                struct ibv_srq_init_attr init = {.attr = {.max_wr = MOST, .max_sge = 2}};
                CHECK((srq = ibv_create_srq(pd, &init)));
                struct ibv_qp *ours = queue_pair(NULL), *theirs = queue_pair(srq);
                join(ours, theirs);
                join(theirs, ours);
                int posted = receives(NULL);
                /* As many messages as were posted find a receive, in order. One more waits. */
                for (int n = 0; n <= posted; n++) {
                    struct ibv_send_wr send = {.wr_id = 1000, .sg_list = pieces, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
                    CHECK(!ibv_post_send(ours, &send, &bad));
                }
                for (int got = 0, sent = 0; got < posted || sent < posted;) {
                    struct ibv_wc wc = next();
                    CHECK(wc.status == IBV_WC_SUCCESS);
                    if (wc.wr_id == 1000)
                        sent++;
                    else
                        CHECK(wc.wr_id == (unsigned)got++);
                }
                struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
                CHECK(!ibv_modify_qp(ours, &a, IBV_QP_STATE));
                struct ibv_wc wc = next();
                CHECK(wc.wr_id == 1000 && wc.status == IBV_WC_WR_FLUSH_ERR);
                CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs) && !ibv_destroy_srq(srq));
                cases++;
            }
        }
    }
    CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
    printf("%d lists were posted as far as they go\n", cases);
    return cases == 0;
}
