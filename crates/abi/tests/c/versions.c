/* Loads the library by hand, as programs do that are not linked to it, and calls functions by name and version. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct ibv_device;

int main(int argc, char **argv) {
    void *library = dlopen(argc > 1 ? argv[1] : "libibverbs.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        return 1;
    }
    struct ibv_device **(*list)(int *) = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    const char *(*name)(struct ibv_device *) = dlsym(library, "ibv_get_device_name");
    void (*free_list)(struct ibv_device **) = dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1");
    if (!list || !name || !free_list) {
        fprintf(stderr, "a symbol is missing\n");
        return 1;
    }
    static const char *const others[][2] = {
        {"ibv_reg_mr_iova2", "IBVERBS_1.8"},     {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"ibv_query_ece", "IBVERBS_1.10"},       {"_ibv_query_gid_table", "IBVERBS_1.11"},
        {"ibv_qp_to_qp_ex", "IBVERBS_1.6"},      {"ibv_query_gid_type", "IBVERBS_PRIVATE_34"},
        {"ibv_get_device_list", "IBVERBS_1.0"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!dlvsym(library, others[i][0], others[i][1])) {
            fprintf(stderr, "%s of %s is missing\n", others[i][0], others[i][1]);
            return 1;
        }
    }
    if (dlvsym(library, "ibv_get_device_list", "IBVERBS_1.5")) {
        fprintf(stderr, "a version that never was is there\n");
        return 1;
    }
    /* The oldest form is there, and refuses. */
    struct ibv_device **(*oldest)(int *) = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0");
    if (oldest(NULL)) {
        fprintf(stderr, "the oldest form made a list\n");
        return 1;
    }
    int count = 0;
    struct ibv_device **devices = list(&count);
    if (!devices || count < 1 || devices[count]) {
        fprintf(stderr, "no list of devices\n");
        return 1;
    }
    printf("%s\n", name(devices[0]));
    free_list(devices);
    return 0;
}
