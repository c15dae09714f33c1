/* Makes and destroys ids, many of them, and sees that neither memory nor descriptors are left of them. Prints every
   surprise. The argument is an address of the device. */
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 10000
/* A hundred bytes for each of them would be more. */
#define KILOBYTES 900

static int surprises;
static struct sockaddr_in address;
static struct rdma_event_channel *channel;

#define WORKS(call)                                                                                                  \
    do {                                                                                                             \
        if (call) {                                                                                                  \
            printf("%d: %s\n", __LINE__, #call);                                                                     \
            perror("errno");                                                                                         \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static void expect(enum rdma_cm_event_type kind)
{
    struct pollfd poller = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    WORKS(poll(&poller, 1, 60000) != 1);
    WORKS(rdma_get_cm_event(channel, &event));
    WORKS(event->event != kind);
    WORKS(rdma_ack_cm_event(event));
}

static void new_only(int number)
{
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(channel, &id, NULL, number % 2 ? RDMA_PS_TCP : RDMA_PS_UDP));
    WORKS(rdma_destroy_id(id));
}

static void with_own_channel(int number)
{
    (void)number;
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    WORKS(rdma_destroy_id(id));
}

static void listening(int number)
{
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    address.sin_port = htons(number % 2 ? 0 : 20000 + number);
    WORKS(rdma_bind_addr(id, (struct sockaddr *)&address));
    if (number % 4)
        WORKS(rdma_listen(id, 4));
    WORKS(rdma_destroy_id(id));
}

static void resolved(int number)
{
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    address.sin_port = htons(7001);
    WORKS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
    if (number % 2) {
        expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        WORKS(rdma_resolve_route(id, 2000));
    }
    /* Also with an event that nothing has fetched. */
    WORKS(rdma_destroy_id(id));
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static long kilobytes(void)
{
    char line[256];
    long count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmRSS: %ld", &count);
    fclose(status);
    return count;
}

static void many(const char *what, void (*one)(int))
{
    /* What is over keeps its place for a while, so that the first ones cost memory that is used again. */
    for (int i = 0; i < MANY / 2; i++)
        one(i);
    int descriptors_before = descriptors();
    long before = kilobytes();
    for (int i = 0; i < MANY; i++)
        one(i);
    if (descriptors() > descriptors_before)
        printf("%s: %d descriptors, %d before\n", what, descriptors(), descriptors_before), surprises++;
    if (kilobytes() > before + KILOBYTES)
        printf("%s: %ld KiB, %ld before\n", what, kilobytes(), before), surprises++;
}

int main(int argc, char **argv)
{
    address.sin_family = AF_INET;
    inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr);
    channel = rdma_create_event_channel();
    WORKS(!channel);
    many("new", new_only);
    many("with channels of their own", with_own_channel);
    many("listening", listening);
    many("resolved", resolved);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
