/* TCP sockets as programs use them: `sockets WHAT ADDRESS`. Each part prints what was not as it should be. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int surprises;

static void is(const char *what, long got, long expected, int line)
{
	if (got == expected)
		return;
	surprises++;
	printf("line %d: %s is %ld, not %ld (%s)\n", line, what, got, expected, strerror(errno));
	fflush(stdout);
}

#define IS(what, expected) is(#what, (long)(what), (long)(expected), __LINE__)
#define FAILS(what, code) (IS(what, -1), IS(errno, code))

/* What is waited for; an alarm ends the program when it takes too long. */
static const char *volatile waits_for = "the beginning";

static void too_long(int signal)
{
	(void)signal;
	static const char words[] = "waited in vain for ";
	write(1, words, sizeof words - 1);
	write(1, waits_for, strlen(waits_for));
	write(1, "\n", 1);
	_exit(3);
}

static const char *address;
static int next_port = 7700;

static struct sockaddr_in at(const char *where, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, where, &in.sin_addr);
	return in;
}

#define SA(in) (struct sockaddr *)&(in), sizeof(in)

/* Two ends of a connection; both do not block. */
static void pair(int ends[2])
{
	struct sockaddr_in in = at(address, next_port++);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	IS(bind(listener, SA(in)), 0);
	IS(listen(listener, 8), 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	IS(connect(ends[0], SA(in)), 0);
	ends[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	IS(ends[1] >= 0, 1);
	IS(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	IS(close(listener), 0);
}

static void enter(int set, int fd, unsigned events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };
	IS(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
}

/* Waits until a socket is readable. */
static void readable(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };
	IS(poll(&entry, 1, 60000), 1);
}

static void gets_byte(int fd)
{
	char byte;
	readable(fd);
	IS(read(fd, &byte, 1), 1);
}

static void gets_end(int fd)
{
	char byte;
	readable(fd);
	IS(read(fd, &byte, 1), 0);
}

/* A connection works both ways. */
static void works(int ends[2])
{
	IS(write(ends[0], "x", 1), 1);
	gets_byte(ends[1]);
	IS(write(ends[1], "x", 1), 1);
	gets_byte(ends[0]);
}

/* Waits until a thread sleeps. */
static void sleeps(atomic_int *thread)
{
	char path[64], line[256], state = 'R';
	while (*thread == 0)
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", *thread);
	for (int times = 0; times < 5;) {
		FILE *file = fopen(path, "r");
		if (file && fgets(line, sizeof line, file))
			state = strrchr(line, ')')[2];
		if (file)
			fclose(file);
		times = state == 'S' ? times + 1 : 0;
		sched_yield();
	}
}

/* Events that are told once: several threads wait, and exactly one is told each time. */

static int once_set;
static atomic_int once_told, once_threads[4];

static void *once_waits(void *number)
{
	for (;;) {
		struct epoll_event event;
		*(atomic_int *)number = gettid();
		IS(epoll_wait(once_set, &event, 1, -1), 1);
		if (event.data.fd < 0)
			return NULL;
		IS(event.events, EPOLLIN);
		once_told++;
	}
}

static void once(unsigned kind)
{
	int ends[2], last[2];
	char byte;
	pthread_t threads[4];
	pair(ends);
	IS(pipe(last), 0);
	once_set = epoll_create1(0);
	enter(once_set, ends[1], EPOLLIN | kind);
	for (int i = 0; i < 4; i++) {
		once_threads[i] = 0;
		pthread_create(&threads[i], NULL, once_waits, &once_threads[i]);
	}
	for (int i = 0; i < 20; i++) {
		for (int j = 0; j < 4; j++)
			sleeps(&once_threads[j]);
		IS(write(ends[0], "x", 1), 1);
		waits_for = "a thread that is told once";
		while (once_told == i)
			sched_yield();
		for (int j = 0; j < 4; j++)
			sleeps(&once_threads[j]);
		IS(once_told, i + 1);
		once_told = i + 1;
		IS(read(ends[1], &byte, 1), 1);
		struct epoll_event event = { .events = EPOLLIN | kind, .data.fd = ends[1] };
		if (kind == EPOLLONESHOT)
			IS(epoll_ctl(once_set, EPOLL_CTL_MOD, ends[1], &event), 0);
	}
	waits_for = "the end of the threads";
	struct epoll_event event = { .events = EPOLLIN, .data.fd = -1 };
	IS(epoll_ctl(once_set, EPOLL_CTL_ADD, last[0], &event), 0);
	write(last[1], "x", 1);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	once_told = 0;
}

static void told(void)
{
	once(EPOLLONESHOT);
	once(EPOLLET);
}

/* Edges: a thread sleeps while another reads the socket empty; it must hear of what comes then. */

static int edge_set;
static atomic_int edge_thread, edge_bytes;

static void *edge_waits(void *unused)
{
	struct epoll_event event;
	edge_thread = gettid();
	IS(epoll_wait(edge_set, &event, 1, -1), 1);
	IS(event.events, EPOLLIN);
	return unused;
}

static void *edge_reads(void *unused)
{
	for (;;) {
		struct epoll_event event;
		char bytes[3];
		IS(epoll_wait(edge_set, &event, 1, -1), 1);
		if (event.data.fd < 0)
			return unused;
		ssize_t got;
		while ((got = read(event.data.fd, bytes, sizeof bytes)) > 0)
			edge_bytes += got;
		IS(errno, EAGAIN);
	}
}

static void edges(void)
{
	int ends[2], last[2];
	char byte;
	struct epoll_event event;
	pthread_t threads[3];
	pair(ends);
	IS(pipe(last), 0);
	edge_set = epoll_create1(0);
	enter(edge_set, ends[1], EPOLLIN | EPOLLET);
	for (int i = 0; i < 20; i++) {
		IS(write(ends[0], "x", 1), 1);
		waits_for = "an edge";
		IS(epoll_wait(edge_set, &event, 1, -1), 1);
		/* Told once. */
		IS(epoll_wait(edge_set, &event, 1, 0), 0);
		edge_thread = 0;
		pthread_create(&threads[0], NULL, edge_waits, NULL);
		sleeps(&edge_thread);
		IS(read(ends[1], &byte, 1), 1);
		if (i % 2)
			FAILS(read(ends[1], &byte, 1), EAGAIN);
		sleeps(&edge_thread);
		IS(write(ends[0], "x", 1), 1);
		waits_for = "the edge after another thread has read";
		pthread_join(threads[0], NULL);
		IS(read(ends[1], &byte, 1), 1);
		FAILS(read(ends[1], &byte, 1), EAGAIN);
	}
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, edge_reads, NULL);
	waits_for = "threads that read what edges tell of";
	for (int sent = 0; sent < 500;) {
		int count = sent % 7 + 1;
		IS(write(ends[0], "abcdefg", count), count);
		sent += count;
		while (edge_bytes < sent)
			sched_yield();
		IS(edge_bytes, sent);
	}
	waits_for = "the end of the threads";
	event = (struct epoll_event){ .events = EPOLLIN, .data.fd = -1 };
	IS(epoll_ctl(edge_set, EPOLL_CTL_ADD, last[0], &event), 0);
	write(last[1], "x", 1);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	/* After the end nothing follows: it is told once, though it is read again. */
	IS(shutdown(ends[0], SHUT_WR), 0);
	IS(epoll_ctl(edge_set, EPOLL_CTL_DEL, last[0], NULL), 0);
	IS(epoll_wait(edge_set, &event, 1, 60000), 1);
	IS(read(ends[1], &byte, 1), 0);
	IS(epoll_wait(edge_set, &event, 1, 0), 0);
}

/* All threads that wait hear of a socket that is added. */

static int added_set;

static void *added_waits(void *slept)
{
	struct epoll_event event;
	*(atomic_int *)slept = gettid();
	IS(epoll_wait(added_set, &event, 1, -1), 1);
	IS(event.events, EPOLLOUT);
	return NULL;
}

static void added(void)
{
	pthread_t threads[3];
	/* The first time the set has only a descriptor of the kernel in it, then a socket of ours. */
	for (int with = 0; with < 2; with++) {
		atomic_int slept[3] = { 0 };
		int idle[2], ends[2], pipes[2];
		pair(ends);
		pair(idle);
		IS(pipe(pipes), 0);
		added_set = epoll_create1(0);
		enter(added_set, with ? idle[0] : pipes[0], EPOLLIN);
		for (int i = 0; i < 3; i++)
			pthread_create(&threads[i], NULL, added_waits, &slept[i]);
		for (int i = 0; i < 3; i++)
			sleeps(&slept[i]);
		enter(added_set, ends[0], EPOLLOUT);
		waits_for = with ? "threads at a set of ours" : "threads at a set of the kernel";
		for (int i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
		/* Nothing of it is left in the kernel's set. */
		IS(epoll_ctl(added_set, EPOLL_CTL_DEL, ends[0], NULL), 0);
		struct epoll_event event;
		IS(epoll_wait(added_set, &event, 1, 10), 0);
	}
}

/* A wait ends in time although the set changes all the time, and does not look again and again until then. */

static int time_set;
static atomic_int time_stops;

static void *time_changes(void *socket)
{
	struct epoll_event event = { .events = EPOLLIN };
	while (!time_stops) {
		IS(epoll_ctl(time_set, EPOLL_CTL_MOD, *(int *)socket, &event), 0);
		sched_yield();
	}
	return NULL;
}

static long micros(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void times(void)
{
	int ends[2];
	pthread_t thread;
	struct epoll_event event;
	pair(ends);
	time_set = epoll_create1(0);
	enter(time_set, ends[1], EPOLLIN);
	pthread_create(&thread, NULL, time_changes, &ends[1]);
	waits_for = "the end of a wait while the set changes";
	long before = micros(CLOCK_MONOTONIC);
	IS(epoll_wait(time_set, &event, 1, 200), 0);
	IS(micros(CLOCK_MONOTONIC) - before >= 200000, 1);
	time_stops = 1;
	pthread_join(thread, NULL);
	/* Parts of a millisecond. */
	before = micros(CLOCK_MONOTONIC);
	long used = micros(CLOCK_THREAD_CPUTIME_ID);
	struct timespec little = { .tv_nsec = 100000 }, more = { .tv_nsec = 400000001 }, none = { .tv_nsec = -1 };
	for (int i = 0; i < 20; i++)
		IS(epoll_pwait2(time_set, &event, 1, &little, NULL), 0);
	IS(micros(CLOCK_MONOTONIC) - before >= 20 * 100, 1);
	IS(epoll_pwait2(time_set, &event, 1, &more, NULL), 0);
	IS(micros(CLOCK_THREAD_CPUTIME_ID) - used < 200000, 1);
	FAILS(epoll_pwait2(time_set, &event, 1, &none, NULL), EINVAL);
}

/* A socket whose destination no device leads to is the kernel's, and its number is never free meanwhile. */

static atomic_int fall_stops;

static void *fall_opens(void *unused)
{
	while (!fall_stops) {
		struct stat about;
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		sched_yield();
		IS(fstat(fd, &about), 0);
		IS(S_ISCHR(about.st_mode), 1);
		IS(close(fd), 0);
	}
	return unused;
}

static void falls(void)
{
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	socklen_t len = sizeof in;
	pthread_t thread;
	int one = 1, got = 0;
	/* System calls are not seen: this one is the kernel's. */
	int listener = syscall(SYS_socket, AF_INET6, SOCK_STREAM, 0);
	IS(syscall(SYS_bind, listener, SA(in)), 0);
	IS(syscall(SYS_listen, listener, 64), 0);
	IS(syscall(SYS_getsockname, listener, &in, &len), 0);
	pthread_create(&thread, NULL, fall_opens, NULL);
	for (int i = 0; i < 50; i++) {
		int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), copy = dup(fd);
		int set = epoll_create1(0);
		struct epoll_event event;
		struct sockaddr_in6 own = { .sin6_family = AF_INET6 }, peer;
		/* One that neither gives to sockets without a wish. */
		own.sin6_port = htons(20000 + i);
		IS(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), 0);
		if (i % 2)
			IS(bind(fd, SA(own)), 0);
		enter(set, fd, EPOLLOUT);
		if (connect(fd, SA(in)) != 0)
			IS(errno, EINPROGRESS);
		waits_for = "a socket of the kernel in the set";
		IS(epoll_wait(set, &event, 1, -1), 1);
		IS(event.data.fd, fd);
		IS(event.events & EPOLLOUT, EPOLLOUT);
		len = sizeof peer;
		int there = syscall(SYS_accept4, listener, &peer, &len, 0);
		IS(there >= 0, 1);
		if (i % 2)
			IS(peer.sin6_port, own.sin6_port);
		len = sizeof got;
		IS(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &got, &len), 0);
		IS(got, 1);
		IS(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
		/* By the copy, too. */
		IS(write(copy, "x", 1), 1);
		gets_byte(there);
		IS(close(fd), 0);
		IS(close(copy), 0);
		gets_end(there);
		IS(close(there), 0);
		IS(close(set), 0);
	}
	fall_stops = 1;
	pthread_join(thread, NULL);
}

/* Copies of numbers, and numbers that are closed in other ways. */
static void copies(void)
{
	int ends[2], others[2];
	char byte;
	struct epoll_event event;
	pair(ends);
	waits_for = "copies";
	int copy = dup(ends[0]), high = fcntl(ends[0], F_DUPFD_CLOEXEC, 200), set = epoll_create1(0);
	IS(high >= 200, 1);
	IS(fcntl(high, F_GETFD), FD_CLOEXEC);
	IS(fcntl(copy, F_GETFD), 0);
	enter(set, ends[1], EPOLLIN);
	int other_set = dup(set);
	IS(close(set), 0);
	IS(write(copy, "x", 1), 1);
	IS(epoll_wait(other_set, &event, 1, 60000), 1);
	IS(event.data.fd, ends[1]);
	gets_byte(ends[1]);
	/* Flags are of the socket, not of the number. */
	IS(fcntl(copy, F_SETFL, 0), 0);
	IS(fcntl(high, F_GETFL) & O_NONBLOCK, 0);
	IS(fcntl(high, F_SETFL, O_NONBLOCK), 0);
	IS(close(ends[0]), 0);
	FAILS(write(ends[0], "x", 1), EBADF);
	works((int[]){ copy, ends[1] });
	IS(close(copy), 0);
	works((int[]){ high, ends[1] });
	FAILS(read(ends[1], &byte, 1), EAGAIN);
	IS(dup2(high, high), high);
	/* Of the kernel over one of ours: that was the last. */
	IS(dup2(1, high), high);
	gets_end(ends[1]);
	IS(close(high), 0);
	IS(close(ends[1]), 0);
	IS(close(other_set), 0);
	/* One of ours over another, and over one of the kernel. */
	pair(ends);
	pair(others);
	IS(dup3(ends[0], others[0], O_CLOEXEC), others[0]);
	gets_end(others[1]);
	works((int[]){ others[0], ends[1] });
	int file = open("/dev/null", O_RDONLY);
	IS(dup2(ends[0], file), file);
	IS(close(ends[0]), 0);
	IS(close(others[0]), 0);
	works((int[]){ file, ends[1] });
	FAILS(dup2(-1, file), EBADF);
	works((int[]){ file, ends[1] });
	/* A range. */
	IS(close_range(file, file, CLOSE_RANGE_CLOEXEC), 0);
	works((int[]){ file, ends[1] });
	IS(close_range(file, file, 0), 0);
	gets_end(ends[1]);
	FAILS(write(file, "x", 1), EBADF);
	IS(close(others[1]), 0);
	/* All of them: the end reaches the peer, and sockets that are made then work. */
	pair(ends);
	pair(others);
	IS(fcntl(ends[0], F_DUPFD, 0) > 0, 1);
	int kept = dup2(ends[1], 2);
	IS(fcntl(others[0], F_SETFD, FD_CLOEXEC), 0);
	closefrom(3);
	FAILS(write(others[0], "x", 1), EBADF);
	gets_end(kept);
	pair(ends);
	works(ends);
}

/* Children that close what they have leave the parent's sockets alone. */
static void children(void)
{
	int ends[2], status;
	pair(ends);
	works(ends);
	waits_for = "children";
	for (int kind = 0; kind < 4; kind++) {
		/* Nothing is changed here but descriptors. */
		pid_t child = kind == 3 ? fork() : vfork();
		if (child == 0) {
			if (kind == 0)
				for (int fd = 3; fd < 1024; fd++)
					close(fd);
			else if (kind == 1)
				close_range(3, ~0u, 0);
			else if (kind == 2)
				dup2(1, ends[0]);
			else {
				/* A daemon: what it makes itself is its own. */
				closefrom(3);
				pair(ends);
				works(ends);
				fflush(stdout);
				if (surprises)
					_exit(1);
			}
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		IS(waitpid(child, &status, 0), child);
		IS(status, 0);
		works(ends);
	}
	posix_spawn_file_actions_t actions;
	char *args[] = { "true", NULL }, *none[] = { NULL };
	pid_t child;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	IS(posix_spawn(&child, "/bin/true", &actions, NULL, args, none), 0);
	IS(waitpid(child, &status, 0), child);
	works(ends);
	IS(close(ends[0]), 0);
	gets_end(ends[1]);
}

/* Signals that are let through during a wait only: one that is there already ends it. */

static atomic_int handled;

static void handle(int signal)
{
	(void)signal;
	handled++;
}

static void signals(void)
{
	int ends[2], set = epoll_create1(0);
	struct sigaction action = { .sa_handler = handle };
	sigset_t ours, before, now, none;
	struct epoll_event event;
	struct timespec minute = { .tv_sec = 60 }, at_once = { 0 };
	pair(ends);
	enter(set, ends[1], EPOLLIN);
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&none);
	sigemptyset(&ours);
	sigaddset(&ours, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &ours, &before);
	waits_for = "the end of a wait by a signal";
	for (int kind = 0; kind < 5; kind++) {
		struct pollfd entry = { .fd = ends[1], .events = POLLIN };
		fd_set reads;
		FD_ZERO(&reads);
		FD_SET(ends[1], &reads);
		raise(SIGUSR1);
		IS(handled, kind);
		if (kind == 0)
			FAILS(ppoll(&entry, 1, &minute, &none), EINTR);
		else if (kind == 1)
			FAILS(pselect(ends[1] + 1, &reads, NULL, NULL, &minute, &none), EINTR);
		else if (kind == 2)
			FAILS(epoll_pwait(set, &event, 1, -1, &none), EINTR);
		else if (kind == 3)
			FAILS(epoll_pwait2(set, &event, 1, &minute, &none), EINTR);
		else
			FAILS(ppoll(&entry, 1, NULL, &none), EINTR);
		IS(handled, kind + 1);
		pthread_sigmask(SIG_BLOCK, NULL, &now);
		IS(sigismember(&now, SIGUSR1), 1);
		IS(sigismember(&now, SIGUSR2), 0);
	}
	/* One that stays blocked ends nothing. */
	raise(SIGUSR1);
	struct pollfd entry = { .fd = ends[1], .events = POLLIN };
	IS(ppoll(&entry, 1, &at_once, &ours), 0);
	IS(write(ends[0], "x", 1), 1);
	IS(ppoll(&entry, 1, &minute, &ours), 1);
	IS(epoll_pwait(set, &event, 1, -1, &ours), 1);
	IS(handled, 5);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	IS(handled, 6);
}

int main(int count, char **args)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = { { "told", told },	    { "edges", edges },	  { "added", added },
		      { "times", times },   { "falls", falls },	  { "copies", copies },
		      { "children", children }, { "signals", signals } };
	if (count != 3)
		return 2;
	address = args[2];
	signal(SIGALRM, too_long);
	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(args[1], parts[i].name))
			continue;
		parts[i].run();
		printf("%s: %d surprises\n", args[1], surprises);
		return surprises != 0;
	}
	return 2;
}
