/* One end of a connection that says what happens to it, line by line, with the time since the machine started in
   milliseconds. Arguments: "server" or "client", the address of the server, and its port. Commands on the standard
   input: "exit" ends the program without another word to its peer, "part" disconnects, "wait N" says "quiet" if nothing
   happens for N milliseconds, "close" ends the listener. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id, *connection;

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void has_queue_pair(struct rdma_cm_id *of)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
    check(rdma_create_qp(of, NULL, &attr), "rdma_create_qp");
    connection = of;
}

/* What has to be done about an event, and whether it is the last. */
static int happened(void)
{
    struct rdma_cm_event *event;
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    int kind = event->event;
    printf("%s %d %ld\n", rdma_event_str(kind), event->status, now());
    struct rdma_cm_id *of = event->id;
    rdma_ack_cm_event(event);
    switch (kind) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        check(rdma_resolve_route(of, 2000), "rdma_resolve_route");
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        has_queue_pair(of);
        check(rdma_connect(of, &param), "rdma_connect");
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        has_queue_pair(of);
        check(rdma_accept(of, &param), "rdma_accept");
        break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    check(argc != 4, "arguments");
    inet_pton(AF_INET, argv[2], &address.sin_addr);
    address.sin_port = htons(atoi(argv[3]));
    channel = rdma_create_event_channel();
    check(!channel, "rdma_create_event_channel");
    check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    if (strcmp(argv[1], "server") == 0) {
        check(rdma_bind_addr(id, (struct sockaddr *)&address), "rdma_bind_addr");
        check(rdma_listen(id, 4), "rdma_listen");
        printf("listens\n");
    } else {
        check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
    }
    int wait = -1;
    for (;;) {
        struct pollfd both[2] = {{.fd = channel->fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        int ready = poll(both, 2, wait);
        wait = -1;
        if (ready == 0)
            printf("quiet\n");
        if (both[0].revents && happened())
            break;
        if (both[1].revents) {
            char command[64];
            if (!fgets(command, sizeof command, stdin) || strcmp(command, "exit\n") == 0)
                exit(0);
            if (strcmp(command, "part\n") == 0)
                check(rdma_disconnect(connection), "rdma_disconnect");
            if (strcmp(command, "close\n") == 0) {
                check(rdma_destroy_id(id), "rdma_destroy_id");
                printf("closed\n");
            }
            if (strncmp(command, "wait ", 5) == 0)
                wait = atoi(command + 5);
        }
    }
    rdma_destroy_qp(connection);
    check(rdma_destroy_id(connection), "rdma_destroy_id");
    return 0;
}
