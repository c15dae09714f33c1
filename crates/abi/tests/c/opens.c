/* Opens the first device, says so or with which error number it failed, and has it until its input ends. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0])
        return 1;
    errno = 0;
    struct ibv_context *ctx = ibv_open_device(list[0]);
    if (ctx)
        printf("open\n");
    else
        printf("errno %d\n", errno);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return ctx && ibv_close_device(ctx);
}
