/* A card that does what a test wants: it moves no bytes, completes what it is given, and fails where the environment says. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

static int told(const char *name) {
  const char *value = getenv(name);
  return value ? atoi(value) : 0;
}

static void *refused(int code) {
  errno = code;
  return NULL;
}

/* What a driver has in front of its context, and a place for what is posted. */
static struct {
  void *future[64];
  struct verbs_context known;
} table;
#define whole table.known
static struct ibv_device device;
static struct ibv_device *list[2];
static uint64_t posted[4096];
static unsigned head, tail;
static int live;
static struct ibv_qp_attr last;
static int poll_fails, status, takes, lies;

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
  (void)cq;
  if (poll_fails)
    return -poll_fails;
  int found = 0;
  for (; found < count && tail != head; found++, tail++) {
    memset(&wc[found], 0, sizeof wc[found]);
    wc[found].wr_id = posted[tail % 4096];
    wc[found].status = status;
    wc[found].qp_num = 17;
  }
  return found;
}

static void complete(uint64_t wr_id) { posted[head++ % 4096] = wr_id; }

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  (void)qp;
  int left = takes;
  struct ibv_send_wr *first = wr;
  for (struct ibv_send_wr *bind = wr; bind; bind = bind->next)
    if (bind->opcode == IBV_WR_BIND_MW)
      bind->qp_type.xrc.remote_srqn = bind->bind_mw.mw->rkey;
  for (; wr; wr = wr->next) {
    if (left && --left == 0) {
      *bad = lies ? first - 1 : wr;
      return ENOMEM;
    }
    if (wr->opcode == IBV_WR_BIND_MW) {
      /* The library reads which key a window has when it is given the list; the card has the window's, and wants the same. */
      if (wr->qp_type.xrc.remote_srqn != wr->bind_mw.mw->handle || wr->bind_mw.rkey == wr->bind_mw.mw->handle) {
        *bad = wr;
        return EINVAL;
      }
      wr->bind_mw.mw->handle = wr->bind_mw.rkey;
    }
    if (wr->send_flags & IBV_SEND_SIGNALED)
      complete(wr->wr_id);
  }
  return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  (void)qp, (void)wr, (void)bad;
  return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
  struct ibv_mw *mw = calloc(1, sizeof *mw);
  mw->context = pd->context, mw->pd = pd, mw->type = type;
  mw->rkey = mw->handle = 0x4700;
  live++;
  return mw;
}
static int dealloc_mw(struct ibv_mw *of) {
  live--;
  free(of);
  return 0;
}

static int req_notify(struct ibv_cq *cq, int solicited_only) { return (void)cq, (void)solicited_only, 0; }

struct ibv_device **ibv_get_device_list(int *count) {
  if (told("CARD_LIST"))
    return refused(told("CARD_LIST"));
  strcpy(device.name, getenv("CARD_NAME") ? getenv("CARD_NAME") : "card0");
  strcpy(device.dev_name, "uverbs7");
  list[0] = &device;
  if (count)
    *count = 1;
  return list;
}
void ibv_free_device_list(struct ibv_device **of) { (void)of; }
__be64 ibv_get_device_guid(struct ibv_device *of) { return (void)of, 0; }

/* What stands where a short table, or none, has nothing. */
static int never_port(struct ibv_context *of, uint8_t port, struct ibv_port_attr *attr, size_t size) {
  (void)of, (void)port, (void)attr, (void)size;
  abort();
}
static int never_device(struct ibv_context *of, const struct ibv_query_device_ex_input *input,
                        struct ibv_device_attr_ex *attr, size_t size) {
  (void)of, (void)input, (void)attr, (void)size;
  abort();
}
static struct ibv_cq_ex *never_cq(struct ibv_context *of, struct ibv_cq_init_attr_ex *attr) {
  (void)of, (void)attr;
  abort();
}

/* What a newer library has, and what it has that is not known yet. */
static int newer_port(struct ibv_context *of, uint8_t port, struct ibv_port_attr *attr, size_t size) {
  (void)of, (void)port, (void)size;
  attr->state = IBV_PORT_ACTIVE, attr->active_mtu = IBV_MTU_1024;
  return 0;
}
static void never(void) { abort(); }

struct ibv_context *ibv_open_device(struct ibv_device *of) {
  if (told("CARD_OPEN"))
    return refused(told("CARD_OPEN"));
  struct ibv_context *context = &whole.context;
  context->device = of;
  context->async_fd = eventfd(0, 0);
  poll_fails = told("CARD_POLL"), status = told("CARD_STATUS"), takes = told("CARD_TAKES"), lies = told("CARD_LIES");
  context->ops.poll_cq = poll_cq;
  context->ops.post_send = told("CARD_NO_OPS") ? NULL : post_send;
  context->ops.post_recv = post_recv;
  context->ops.req_notify_cq = req_notify;
  if (told("CARD_WINDOWS"))
    context->ops.alloc_mw = alloc_mw, context->ops.dealloc_mw = dealloc_mw;
  if (told("CARD_TABLE") || told("CARD_OLD"))
    whole.query_port = never_port, whole.query_device_ex = never_device, whole.create_cq_ex = never_cq;
  if (told("CARD_NEWER")) {
    whole.query_port = newer_port;
    for (int at = 0; at < 64; at++)
      table.future[at] = (void *)never;
  }
  whole.sz = told("CARD_NEWER") ? sizeof table : told("CARD_TABLE") ? (size_t)told("CARD_TABLE") : sizeof whole;
  context->abi_compat = told("CARD_OLD") ? NULL : (void *)UINTPTR_MAX;
  return context;
}
int ibv_close_device(struct ibv_context *of) { return close(of->async_fd); }

int ibv_get_async_event(struct ibv_context *of, struct ibv_async_event *event) {
  uint64_t count;
  if (told("CARD_GONE")) {
    event->event_type = IBV_EVENT_DEVICE_FATAL;
    unsetenv("CARD_GONE");
    live++;
    return 0;
  }
  return read(of->async_fd, &count, sizeof count) == sizeof count ? 0 : -1;
}
void ibv_ack_async_event(struct ibv_async_event *event) { (void)event, live--; }

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attr) {
  (void)of;
  memset(attr, 0, sizeof *attr);
  attr->vendor_id = told("CARD_VENDOR");
  return 0;
}
int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attr) {
  (void)of, (void)port;
  ((struct ibv_port_attr *)attr)->state = IBV_PORT_ACTIVE;
  ((struct ibv_port_attr *)attr)->link_layer = IBV_LINK_LAYER_ETHERNET;
  ((struct ibv_port_attr *)attr)->gid_tbl_len = told("CARD_GIDS");
  return 0;
}
int ibv_query_gid(struct ibv_context *of, uint8_t port, int index, union ibv_gid *gid) {
  (void)of, (void)port;
  if (index >= told("CARD_GIDS"))
    return -1;
  *gid = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 192, 0, 2, index + 1}};
  return 0;
}
int ibv_query_pkey(struct ibv_context *of, uint8_t port, int index, __be16 *pkey) {
  return (void)of, (void)port, (void)index, (void)pkey, -EIO;
}

#define MAKE(type) ((void)live++, calloc(1, sizeof(struct type)))
#define END(of, code)                                                                                            \
  do {                                                                                                           \
    if (told(code))                                                                                              \
      return told(code);                                                                                         \
    live--;                                                                                                      \
    free(of);                                                                                                    \
    return 0;                                                                                                    \
  } while (0)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of) {
  struct ibv_pd *pd = MAKE(ibv_pd);
  pd->context = of;
  return pd;
}
int ibv_dealloc_pd(struct ibv_pd *of) { END(of, "CARD_NEVER"); }

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *first, size_t length, int access) {
  (void)first, (void)length, (void)access;
  if (told("CARD_REGISTER"))
    return refused(told("CARD_REGISTER"));
  struct ibv_mr *mr = MAKE(ibv_mr);
  mr->context = pd->context;
  return mr;
}
int ibv_dereg_mr(struct ibv_mr *of) { END(of, "CARD_DEREGISTER"); }

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of) {
  struct ibv_comp_channel *channel = MAKE(ibv_comp_channel);
  channel->context = of;
  channel->fd = of->async_fd;
  return channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *of) { END(of, "CARD_NEVER"); }
struct ibv_cq *ibv_create_cq(struct ibv_context *of, int cqe, void *context, struct ibv_comp_channel *channel, int vector) {
  (void)vector;
  struct ibv_cq *cq = MAKE(ibv_cq);
  cq->context = of, cq->cqe = cqe, cq->cq_context = context, cq->channel = channel;
  return cq;
}
int ibv_resize_cq(struct ibv_cq *of, int cqe) { return of->cqe = cqe, 0; }
int ibv_destroy_cq(struct ibv_cq *of) { END(of, "CARD_NEVER"); }
int ibv_get_cq_event(struct ibv_comp_channel *of, struct ibv_cq **cq, void **context) {
  return (void)of, (void)cq, (void)context, errno = EAGAIN, -1;
}
void ibv_ack_cq_events(struct ibv_cq *of, unsigned count) { (void)of, (void)count; }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
  (void)attr;
  struct ibv_srq *srq = MAKE(ibv_srq);
  srq->context = pd->context;
  return srq;
}
int ibv_modify_srq(struct ibv_srq *of, struct ibv_srq_attr *attr, int mask) {
  return (void)of, (void)attr, (void)mask, ENOSYS;
}
int ibv_query_srq(struct ibv_srq *of, struct ibv_srq_attr *attr) { return (void)of, (void)attr, ENOSYS; }
int ibv_destroy_srq(struct ibv_srq *of) { END(of, "CARD_DESTROY"); }

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  (void)attr;
  struct ibv_qp *qp = MAKE(ibv_qp);
  qp->context = pd->context, qp->qp_num = 17;
  return qp;
}
int ibv_modify_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask) {
  return (void)of, (void)mask, last = *attr, 0;
}
int ibv_query_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
  return (void)of, (void)mask, (void)init, *attr = last, 0;
}
int ibv_destroy_qp(struct ibv_qp *of) { END(of, "CARD_DESTROY"); }
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
  (void)attr;
  struct ibv_ah *ah = MAKE(ibv_ah);
  ah->context = pd->context;
  return ah;
}
int ibv_destroy_ah(struct ibv_ah *of) { END(of, "CARD_NEVER"); }
int ibv_attach_mcast(struct ibv_qp *of, const union ibv_gid *gid, uint16_t lid) {
  return (void)of, (void)gid, (void)lid, ENOSYS;
}
int ibv_detach_mcast(struct ibv_qp *of, const union ibv_gid *gid, uint16_t lid) {
  return (void)of, (void)gid, (void)lid, ENOSYS;
}

/* Objects that are there still, for a test that looks. */
enum ibv_fork_status ibv_is_fork_initialized(void) { return told("CARD_FORK") ? IBV_FORK_ENABLED : IBV_FORK_UNNEEDED; }
static void __attribute__((destructor)) count(void) {
  if (told("CARD_COUNT"))
    printf("%d objects left\n", live);
}

static struct ibv_qp any_qp = {.context = &whole.context};
static struct ibv_cq any_cq = {.context = &whole.context};

/* Posts as many requests as a C program does it, and polls once: whether all went well. */
int card_round(long count) {
  struct ibv_sge sge = {.addr = 4096, .length = 8, .lkey = 5};
  struct ibv_send_wr wr[16], *bad;
  for (long one = 0; one < count; one++) {
    wr[one] = (struct ibv_send_wr){.wr_id = one, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr[one].next = one + 1 < count ? &wr[one + 1] : NULL;
    wr[one].send_flags = one + 1 < count ? 0 : IBV_SEND_SIGNALED;
    wr[one].wr.rdma.remote_addr = one;
  }
  struct ibv_wc wc;
  if (count && ibv_post_send(&any_qp, wr, &bad))
    return 0;
  return ibv_poll_cq(&any_cq, 1, &wc) == (count > 0);
}

/* The same of one request, so often: nanoseconds. */
long card_time(long rounds) {
  struct timespec from, to;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  for (long round = 0; round < rounds; round++) {
    struct ibv_sge sge = {.addr = 4096, .length = 8, .lkey = 5};
    struct ibv_send_wr wr = {.wr_id = round, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = round;
    struct ibv_wc wc;
    if (ibv_post_send(&any_qp, &wr, &bad) || ibv_poll_cq(&any_cq, 1, &wc) != 1)
      return -1;
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
  return (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec;
}
