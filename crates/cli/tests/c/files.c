/* Every function that takes a path, on files of our device and on others. The arguments are a folder with the file `file`, the
   link `link` to it and the folder `sub`, and whether our files are shown. Prints every surprise. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int surprises;

static void expect(const char *path, const char *what, long got, long expected) {
    if (got != expected) {
        printf("%s of %s: %ld, not %ld (errno %d)\n", what, path, got, expected, errno);
        surprises++;
    }
}

#define KIND(mode) ((long)((mode) & S_IFMT))

/* The kind of file that each function of `stat`'s family sees, or 0. */
static void look(const char *path, long kind, long link_kind) {
    struct stat s;
    struct stat64 s64;
    struct statx x;
    expect(path, "stat", stat(path, &s) ? 0 : KIND(s.st_mode), kind);
    expect(path, "stat64", stat64(path, &s64) ? 0 : KIND(s64.st_mode), kind);
    expect(path, "lstat", lstat(path, &s) ? 0 : KIND(s.st_mode), link_kind);
    expect(path, "lstat64", lstat64(path, &s64) ? 0 : KIND(s64.st_mode), link_kind);
    expect(path, "fstatat", fstatat(AT_FDCWD, path, &s, 0) ? 0 : KIND(s.st_mode), kind);
    expect(path, "fstatat64", fstatat64(-1, path, &s64, AT_SYMLINK_NOFOLLOW) ? 0 : KIND(s64.st_mode), link_kind);
    expect(path, "statx", statx(AT_FDCWD, path, 0, STATX_TYPE, &x) ? 0 : KIND(x.stx_mode), kind);
    const char *old[] = {"__xstat", "__xstat64", "__lxstat", "__lxstat64"};
    for (int i = 0; i < 4; i++) {
        int (*call)(int, const char *, struct stat *) = dlsym(RTLD_DEFAULT, old[i]);
        if (call)
            expect(path, old[i], call(1, path, &s) ? 0 : KIND(s.st_mode), i < 2 ? kind : link_kind);
    }
    int (*at)(int, int, const char *, struct stat *, int) = dlsym(RTLD_DEFAULT, "__fxstatat64");
    if (at)
        expect(path, "__fxstatat64", at(1, AT_FDCWD, path, &s, 0) ? 0 : KIND(s.st_mode), kind);
    int there = kind ? 0 : -1;
    expect(path, "access", access(path, R_OK), there);
    expect(path, "eaccess", eaccess(path, R_OK), there);
    expect(path, "faccessat", faccessat(AT_FDCWD, path, F_OK, 0), there);
    expect(path, "faccessat", faccessat(AT_FDCWD, path, R_OK, AT_EACCESS), there);
    if (kind == S_IFCHR)
        expect(path, "access", access(path, R_OK | W_OK), 0);
}

static void contents(const char *path, int fd, const char *what, const char *text) {
    char got[64] = {0};
    ssize_t len = fd < 0 ? -1 : read(fd, got, sizeof got - 1);
    if (len < 0 ? text != NULL : !text || strcmp(got, text)) {
        printf("%s of %s: '%s' (errno %d)\n", what, path, got, errno);
        surprises++;
    }
    if (fd >= 0)
        close(fd);
}

static void read_it(const char *path, const char *text) {
    volatile int flags = O_RDONLY | O_CLOEXEC;
    contents(path, open(path, O_RDONLY), "open", text);
    contents(path, open(path, flags), "open", text);
    contents(path, open64(path, flags), "open64", text);
    contents(path, openat(AT_FDCWD, path, flags), "openat", text);
    contents(path, openat64(-1, path, flags), "openat64", text);
    FILE *file = fopen(path, "r"), *file64 = fopen64(path, "re");
    contents(path, file ? dup(fileno(file)) : -1, "fopen", text);
    contents(path, file64 ? dup(fileno(file64)) : -1, "fopen64", text);
    if (file && (file = freopen(path, "r", file)))
        contents(path, dup(fileno(file)), "freopen", text);
    if (file)
        fclose(file);
    if (file64)
        fclose(file64);
}

/* Whether a folder has this name in it, by each way of reading it. */
static void list(const char *path, const char *name, int expected) {
    DIR *dir = opendir(path);
    int found = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        found |= !strcmp(entry->d_name, name);
    expect(path, "opendir", found, expected);
    if (dir)
        closedir(dir);
    struct dirent **all = NULL;
    struct dirent64 **all64 = NULL;
    int count = scandir(path, &all, NULL, alphasort), count64 = scandir64(path, &all64, NULL, alphasort64);
    found = 0;
    for (int i = 0; i < count; i++)
        found |= !strcmp(all[i]->d_name, name);
    expect(path, "scandir", found, expected);
    found = 0;
    for (int i = 0; i < count64; i++)
        found |= !strcmp(all64[i]->d_name, name);
    expect(path, "scandir64", found, expected);
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    struct stat s;
    expect(path, "fstatat in it", folder < 0 ? 0 : fstatat(folder, name, &s, 0) == 0, expected);
}

/* Where a path leads; null if to nothing. */
static void resolve(const char *path, const char *expected) {
    char room[PATH_MAX];
    char *forms[] = {realpath(path, NULL), realpath(path, room), canonicalize_file_name(path)};
    for (int i = 0; i < 3; i++)
        if (expected ? !forms[i] || strcmp(forms[i], expected) : forms[i] != NULL) {
            printf("realpath of %s: %s\n", path, forms[i] ? forms[i] : "nothing");
            surprises++;
        }
}

static void follow(const char *path, int error) {
    char room[PATH_MAX];
    volatile size_t size = sizeof room;
    expect(path, "readlink", readlink(path, room, size) < 0 ? errno : 0, error);
    expect(path, "readlinkat", readlinkat(AT_FDCWD, path, room, size) < 0 ? errno : 0, error);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int shown = atoi(argv[2]);
    char file[PATH_MAX], link[PATH_MAX], long_path[3000] = "/sys/class/infiniband/";
    snprintf(file, sizeof file, "%s/file", argv[1]);
    snprintf(link, sizeof link, "%s/link", argv[1]);
    memset(long_path + strlen(long_path), 'x', 2000);

    const char *type = "/sys/class/infiniband/ferroce_lo/node_type", *node = "/dev/infiniband/uverbs0";
    const char *net = "/sys/class/net/lo/device/infiniband", *odd = "//sys/class/./infiniband//ferroce_lo/../ferroce_lo";
    look(type, shown ? S_IFREG : 0, shown ? S_IFREG : 0);
    look(node, shown ? S_IFCHR : 0, shown ? S_IFCHR : 0);
    look(net, shown ? S_IFDIR : 0, shown ? S_IFDIR : 0);
    look(odd, shown ? S_IFDIR : 0, shown ? S_IFDIR : 0);
    read_it(type, shown ? "1: CA\n" : NULL);
    read_it(node, shown ? "" : NULL);
    list("/sys/class/infiniband", "ferroce_lo", shown);
    list("/sys/class/infiniband_verbs", "uverbs0", shown);
    list("/dev/infiniband/", "uverbs0", shown);
    list(net, "ferroce_lo", shown);
    resolve(type, shown ? type : NULL);
    resolve(node, shown ? node : NULL);
    resolve(odd, shown ? "/sys/class/infiniband/ferroce_lo" : NULL);
    follow(type, shown ? EINVAL : ENOENT);
    follow(node, shown ? EINVAL : ENOENT);
    int fd = open(node, O_RDWR);
    struct stat s = {0};
    expect(node, "fstat", fd < 0 || fstat(fd, &s) ? 0 : KIND(s.st_mode), shown ? S_IFCHR : 0);

    /* What is not there. */
    look("/sys/class/infiniband/none", 0, 0);
    look("/dev/infiniband/uverbs77", 0, 0);
    look(long_path, 0, 0);
    read_it("/sys/class/infiniband/none", NULL);
    resolve("/dev/infiniband/uverbs77", NULL);
    look("", 0, 0);

    /* Other files are as they are. */
    look(file, S_IFREG, S_IFREG);
    look(link, S_IFREG, S_IFLNK);
    look("/dev/zero", S_IFCHR, S_IFCHR);
    read_it(file, "outside\n");
    list(argv[1], "sub", 1);
    resolve(link, file);
    follow(link, 0);
    follow(file, EINVAL);
    int made = open(strcat(link, "-made"), O_CREAT | O_WRONLY | O_EXCL, 0640);
    expect(link, "mode", made < 0 || fstat(made, &s) ? 0 : s.st_mode & 0777, 0640);
    unlink(link);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
