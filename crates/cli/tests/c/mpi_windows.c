// One-sided windows: put, get, accumulate, fetch-and-op, compare-and-swap in all ways to synchronise, every value
// checked. Arguments: how many rounds.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

#define CHECK(condition, ...)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "rank %d, line %d: ", rank, __LINE__);             \
            fprintf(stderr, __VA_ARGS__);                                      \
            fprintf(stderr, "\n");                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                      \
        }                                                                      \
    } while (0)

// How many numbers one rank has in the window of another.
#define PART 3000

static int64_t value(int from, int to, int place, int round) {
    return from * 1000000007LL + to * 10007LL + place * 13LL + round;
}

// Puts between fences: a part of every window for each rank; then everything is read back.
static void put_and_get(MPI_Win window, int64_t *own, int round) {
    int64_t *out = malloc(sizeof *out * PART * ranks), *back = malloc(sizeof *back * PART * ranks);
    CHECK(out && back, "no memory");
    MPI_Win_fence(0, window);
    for (int peer = 0; peer < ranks; peer++) {
        for (int i = 0; i < PART; i++)
            out[peer * PART + i] = value(rank, peer, i, round);
        MPI_Put(out + peer * PART, PART, MPI_INT64_T, peer, (MPI_Aint)rank * PART, PART, MPI_INT64_T, window);
    }
    MPI_Win_fence(0, window);
    for (int peer = 0; peer < ranks; peer++)
        for (int i = 0; i < PART; i++)
            CHECK(own[peer * PART + i] == value(peer, rank, i, round), "put: %lld of %d at %d",
                  (long long)own[peer * PART + i], peer, i);
    MPI_Win_fence(0, window);
    for (int peer = 0; peer < ranks; peer++)
        MPI_Get(back + peer * PART, PART, MPI_INT64_T, peer, (MPI_Aint)rank * PART, PART, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < PART * ranks; i++)
        CHECK(back[i] == out[i], "get: %lld instead of %lld at %d", (long long)back[i], (long long)out[i], i);
    free(out);
    free(back);
}

// All ranks add to the same numbers of rank 0 at once, under shared locks: no addition may be lost.
static void accumulate(MPI_Win window, int64_t *own) {
    enum { COUNT = 17, TIMES = 20 };
    int64_t add[COUNT];
    for (int i = 0; i < COUNT; i++)
        add[i] = (rank + 1) * (i + 1);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    for (int i = 0; i < COUNT; i++)
        own[i] = 5;
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int time = 0; time < TIMES; time++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Accumulate(add, COUNT, MPI_INT64_T, 0, 0, COUNT, MPI_INT64_T, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t seen[COUNT], none[COUNT] = {0};
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get_accumulate(none, COUNT, MPI_INT64_T, seen, COUNT, MPI_INT64_T, 0, 0, COUNT, MPI_INT64_T, MPI_NO_OP, window);
    MPI_Win_unlock(0, window);
    for (int i = 0; i < COUNT; i++) {
        int64_t expected = 5 + (int64_t)TIMES * (i + 1) * ranks * (ranks + 1) / 2;
        CHECK(seen[i] == expected, "accumulate: %lld instead of %lld at %d", (long long)seen[i], (long long)expected, i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

// A counter of rank 0: each number is drawn once. Then the same by comparing and swapping, and for 32 bits.
static void atomics(MPI_Win window, int64_t *own) {
    enum { DRAWS = 50 };
    int64_t one = 1, drawn[DRAWS], zero = 0;
    int32_t one32 = 1, before32 = -1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    own[0] = own[1] = own[2] = own[3] = 0;
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < DRAWS; i++) {
        MPI_Fetch_and_op(&one, &drawn[i], MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(i == 0 || drawn[i] > drawn[i - 1], "drew %lld after %lld", (long long)drawn[i], (long long)drawn[i - 1]);
    }
    for (int i = 0; i < DRAWS; i++) {
        int64_t expected = 0, found = -1, next;
        for (;;) {
            next = expected + 1;
            MPI_Compare_and_swap(&next, &expected, &found, MPI_INT64_T, 0, 1, window);
            MPI_Win_flush(0, window);
            if (found == expected)
                break;
            expected = found;
        }
    }
    for (int i = 0; i < DRAWS; i++) {
        MPI_Fetch_and_op(&one32, &before32, MPI_INT32_T, 0, 2, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    int64_t mine = rank + 100, replaced = -1;
    MPI_Fetch_and_op(&mine, &replaced, MPI_INT64_T, (rank + 1) % ranks, 3, MPI_REPLACE, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    CHECK(replaced == 0, "replaced %lld", (long long)replaced);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t *all = malloc(sizeof *all * DRAWS * ranks);
    CHECK(all, "no memory");
    MPI_Gather(drawn, DRAWS, MPI_INT64_T, all, DRAWS, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        char *seen = calloc(DRAWS, ranks);
        CHECK(seen, "no memory");
        for (int i = 0; i < DRAWS * ranks; i++) {
            CHECK(all[i] >= 0 && all[i] < DRAWS * ranks && !seen[all[i]], "%lld was drawn twice", (long long)all[i]);
            seen[all[i]] = 1;
        }
        free(seen);
    }
    free(all);
    int64_t sums[3] = {-1, -1, -1}, expected = (int64_t)DRAWS * ranks;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    for (int i = 0; i < 3; i++)
        MPI_Fetch_and_op(&zero, &sums[i], MPI_INT64_T, 0, i, MPI_NO_OP, window);
    MPI_Win_unlock(0, window);
    for (int i = 0; i < 3; i++)
        CHECK(sums[i] == expected, "counter %d is %lld", i, (long long)sums[i]);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(own[3] == (rank + ranks - 1) % ranks + 100, "replaced by %lld", (long long)own[3]);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Even ranks expose their windows to odd ones, and only to these.
static void posted(MPI_Win window, int64_t *own, int round) {
    int peer = rank ^ 1;
    if (peer >= ranks)
        return;
    MPI_Group world, other;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &peer, &other);
    int64_t sent = value(rank, peer, 0, round);
    if (rank % 2) {
        MPI_Win_start(other, 0, window);
        MPI_Put(&sent, 1, MPI_INT64_T, peer, 7, 1, MPI_INT64_T, window);
        MPI_Win_complete(window);
    } else {
        MPI_Win_post(other, 0, window);
        MPI_Win_wait(window);
        CHECK(own[7] == value(peer, rank, 0, round), "posted: %lld", (long long)own[7]);
    }
    MPI_Group_free(&other);
    MPI_Group_free(&world);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Aint size = (MPI_Aint)sizeof(int64_t) * PART * ranks;
    // Memory of the library, and memory of our own.
    for (int kind = 0; kind < 2; kind++) {
        int64_t *own = NULL;
        MPI_Win window;
        if (kind == 0) {
            MPI_Win_allocate(size, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
        } else {
            own = calloc((size_t)PART * ranks, sizeof *own);
            CHECK(own, "no memory");
            MPI_Win_create(own, size, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        }
        for (int round = 0; round < rounds; round++) {
            put_and_get(window, own, round);
            accumulate(window, own);
            atomics(window, own);
            MPI_Barrier(MPI_COMM_WORLD);
            posted(window, own, round);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Win_free(&window);
        if (kind == 1)
            free(own);
    }
    if (rank == 0)
        printf("windows: %d ranks, %d rounds, all right\n", ranks, rounds);
    MPI_Finalize();
    return 0;
}
