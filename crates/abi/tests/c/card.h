/*
 * A card that is found by name in a library loaded by hand, and a queue pair on it that is connected to itself: what
 * programs do that are not linked to the library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN 64

struct card {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    char memory[2 * LEN];
    unsigned char last;
};

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(3);
    }
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        fprintf(stderr, "%s\n", dlerror());
    must(found != NULL, name);
    return found;
}

#define CALL(library, name) ((typeof(&(name)))symbol(library, #name))

/* A queue pair that sends to itself, on the first device. */
static void open_card(void *library, struct card *card) {
    struct ibv_device **list = CALL(library, ibv_get_device_list)(NULL);
    must(list && list[0], "a device");
    must((card->context = CALL(library, ibv_open_device)(list[0])) != NULL, "open");
    CALL(library, ibv_free_device_list)(list);
    must((card->pd = CALL(library, ibv_alloc_pd)(card->context)) != NULL, "domain");
    must((card->cq = CALL(library, ibv_create_cq)(card->context, 16, NULL, NULL, 0)) != NULL, "completion queue");
    struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int) = symbol(library, "ibv_reg_mr");
    must((card->mr = reg_mr(card->pd, card->memory, 2 * LEN, IBV_ACCESS_LOCAL_WRITE)) != NULL, "region");
    struct ibv_qp_init_attr init = {.send_cq = card->cq, .recv_cq = card->cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    must((card->qp = CALL(library, ibv_create_qp)(card->pd, &init)) != NULL, "queue pair");
    union ibv_gid gid;
    must(!CALL(library, ibv_query_gid)(card->context, 1, 0, &gid), "GID");
    int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = symbol(library, "ibv_modify_qp");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    must(!modify(card->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = card->qp->qp_num,
                             .rq_psn = 7, .min_rnr_timer = 1,
                             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}}};
    must(!modify(card->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    must(!modify(card->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* One message, which must arrive as it was sent. It needs the card alone, and no library by name. */
static void exchange(struct card *card) {
    struct ibv_sge to = {(uintptr_t)card->memory, LEN, card->mr->lkey};
    struct ibv_sge from = {(uintptr_t)card->memory + LEN, LEN, card->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad_send;
    memset(card->memory + LEN, ++card->last, LEN);
    must(!ibv_post_recv(card->qp, &receive, &bad_receive) && !ibv_post_send(card->qp, &send, &bad_send), "post");
    for (int seen = 0; seen < 2;) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(card->cq, 1, &wc);
        must(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "a completion");
        seen += n;
    }
    must(!memcmp(card->memory, card->memory + LEN, LEN), "what was sent");
}

static void close_card(void *library, struct card *card) {
    must(!CALL(library, ibv_destroy_qp)(card->qp) && !CALL(library, ibv_dereg_mr)(card->mr) &&
             !CALL(library, ibv_destroy_cq)(card->cq) && !CALL(library, ibv_dealloc_pd)(card->pd) &&
             !CALL(library, ibv_close_device)(card->context), "close");
}
