/*
 * Two processes play ping-pong, and one of them ends as soon as it has polled its last completion. The other one's last
 * message must succeed all the same.
 *
 *   parting exit|destroy ROUNDS TIMEOUT     ends by exit() with everything open, or takes everything down before
 *                                           TIMEOUT as in ibv_qp_attr: how long each waits for the other, eight times
 *
 * Prints how many of the rounds failed. With FERROCE_FAULTS in the environment each round has a seed of its own.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES 12
#define LEN 64

struct address {
    uint32_t qpn, psn;
    union ibv_gid gid;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static char memory[LEN];
static int timeout = 14;

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(3);
    }
}

static void receive(void) {
    struct ibv_sge sge = {(uintptr_t)memory, LEN, mr->lkey};
    struct ibv_recv_wr work = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    must(!ibv_post_recv(qp, &work, &bad), "receive");
}

static void post_send(int signaled) {
    struct ibv_sge sge = {(uintptr_t)memory, LEN, mr->lkey};
    struct ibv_send_wr work = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                               .send_flags = signaled ? IBV_SEND_SIGNALED : 0}, *bad;
    must(!ibv_post_send(qp, &work, &bad), "send");
}

/* The status of the next completion. */
static int next(void) {
    struct ibv_wc wc;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc)))
        ;
    must(n == 1, "poll");
    return wc.status;
}

static void join(int peer) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    must(list && list[0] && (ctx = ibv_open_device(list[0])), "open");
    must((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)), "domain and queue");
    must((mr = ibv_reg_mr(pd, memory, LEN, IBV_ACCESS_LOCAL_WRITE)) != NULL, "region");
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1}};
    must((qp = ibv_create_qp(pd, &init)) != NULL, "queue pair");
    struct address us = {.qpn = qp->qp_num, .psn = getpid() * 7919u & 0xffffff}, them;
    must(!ibv_query_gid(ctx, 1, 0, &us.gid), "GID");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    for (int i = 0; i < MESSAGES; i++)
        receive();
    must(write(peer, &us, sizeof us) == sizeof us && read(peer, &them, sizeof them) == sizeof them, "greeting");
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = them.qpn, .rq_psn = them.psn,
                             .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = them.gid}}};
    must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = us.psn, .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7};
    must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
    /* Both are ready. */
    char byte = 0;
    must(write(peer, &byte, 1) == 1 && read(peer, &byte, 1) == 1, "greeting");
}

static int leave(void) {
    return ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(ctx);
}

/* Ends after its last receive. */
static void first_to_go(int peer, int takes_down) {
    join(peer);
    for (int i = 1; i < MESSAGES; i++) {
        must(next() == IBV_WC_SUCCESS, "a message");
        post_send(0);
    }
    must(next() == IBV_WC_SUCCESS, "the last message");
    exit(takes_down ? leave() : 0);
}

/* Learns whether its last message arrived. */
static void last_to_go(int peer) {
    join(peer);
    for (int i = 1; i < MESSAGES; i++) {
        post_send(0);
        must(next() == IBV_WC_SUCCESS, "an answer");
    }
    post_send(1);
    int status = next();
    if (status)
        fprintf(stderr, "the last message: %s\n", ibv_wc_status_str(status));
    exit(status ? 2 : leave());
}

int main(int argc, char **argv) {
    const char *faults = getenv("FERROCE_FAULTS");
    char plan[200];
    int failed = 0, rounds = argc > 2 ? atoi(argv[2]) : 1, takes_down = argc > 1 && !strcmp(argv[1], "destroy");
    timeout = argc > 3 ? atoi(argv[3]) : timeout;
    for (int round = 0; round < rounds; round++) {
        int ends[2], child[2], status;
        must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "sockets");
        for (int i = 0; i < 2; i++) {
            if (faults) {
                snprintf(plan, sizeof plan, "%s,seed=%d", faults, 2 * round + i);
                setenv("FERROCE_FAULTS", plan, 1);
            }
            if (!(child[i] = fork())) {
                close(ends[1 - i]);
                i ? last_to_go(ends[1]) : first_to_go(ends[0], takes_down);
            }
        }
        close(ends[0]);
        close(ends[1]);
        int bad = 0;
        for (int i = 0; i < 2; i++) {
            must(waitpid(child[i], &status, 0) == child[i], "wait");
            bad |= status != 0;
        }
        failed += bad;
    }
    printf("%d of %d failed\n", failed, rounds);
    return 0;
}
