/*
 * What plain UDP sockets do between two processes on loopback: the measure beside which RDMA over UDP stands.
 *
 *   raw stream SEGMENT COUNT MILLISECONDS   "messages=N bytes=N", each in a second. COUNT datagrams of SEGMENT bytes
 *                                           leave with one call; more than one as a run that is cut (UDP_SEGMENT)
 *   raw trip LENGTH COUNT                   "us=N p99=N": half a round trip, both sides polling
 *
 * A stream keeps WINDOW bytes under way and is told what arrived, so that nobody works for what is dropped.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define WINDOW (512 << 10)
#define BUFFER (4 << 20)
#define TELL_AFTER 4
/* Nothing moved for so long: something is broken. */
#define STUCK 20.0

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

/* A socket on loopback that never waits, with a receive buffer as the device has it. */
static int endpoint(struct sockaddr_in *name)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof *name;
	int size = BUFFER, s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	must(s >= 0 && !bind(s, (struct sockaddr *)&any, sizeof any), "socket");
	if (setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
		setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	must(!getsockname(s, (struct sockaddr *)name, &len), "getsockname");
	return s;
}

static int came(ssize_t got)
{
	must(got >= 0 || errno == EAGAIN, "recv");
	return got >= 0;
}

/* Tells the sender how much came so far: after every few datagrams, and whenever no more are there. */
static void sink(int s)
{
	static char bytes[1 << 16];
	struct sockaddr_in from;
	uint64_t total = 0;
	int untold = 0, one = 1;

	setsockopt(s, IPPROTO_UDP, UDP_GRO, &one, sizeof one);
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t got = recvfrom(s, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
		int any = came(got);
		if (any)
			total += got, untold++;
		if (untold == TELL_AFTER || (!any && untold)) {
			must(sendto(s, &total, sizeof total, 0, (struct sockaddr *)&from, sizeof from) > 0, "tell");
			untold = 0;
		}
	}
}

static void stream(int s, struct sockaddr_in *to, int segment, int count, double limit)
{
	static char bytes[1 << 16];
	uint64_t sent = 0, known = 0, told;
	double begun, moved, t;

	must(segment > 0 && count > 0 && (size_t)segment * count <= sizeof bytes - 1024, "at most 63 KiB in one call");
	if (count > 1)
		must(!setsockopt(s, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), "UDP_SEGMENT");
	begun = moved = t = now();
	while (t - begun < limit) {
		while (sent - known < WINDOW) {
			must(sendto(s, bytes, segment * count, 0, (struct sockaddr *)to, sizeof *to) > 0, "send");
			sent += segment * count;
		}
		if (came(recv(s, &told, sizeof told, 0)) && told > known)
			known = told, moved = t;
		t = now();
		if (t - moved > STUCK) {
			fprintf(stderr, "raw: datagrams were lost\n");
			exit(1);
		}
	}
	double rate = known / (t - begun);
	printf("messages=%.0f bytes=%.0f\n", rate / segment, rate);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void bounce(int s)
{
	char bytes[4096];
	struct sockaddr_in from;
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t got = recvfrom(s, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
		if (came(got))
			must(sendto(s, bytes, got, 0, (struct sockaddr *)&from, len) == got, "answer");
	}
}

static void trip(int s, struct sockaddr_in *to, int length, int count)
{
	char bytes[4096] = { 0 };
	double *half = calloc(count, sizeof *half);
	must(half && length > 0 && length <= (int)sizeof bytes && count > 0, "length or count");
	for (int i = 0; i < count; i++) {
		double begun = now();
		must(sendto(s, bytes, length, 0, (struct sockaddr *)to, sizeof *to) == length, "send");
		while (!came(recv(s, bytes, sizeof bytes, 0)))
			;
		half[i] = (now() - begun) / 2 * 1e6;
	}
	qsort(half, count, sizeof *half, by_size);
	printf("us=%.2f p99=%.2f\n", half[count / 2], half[count * 99 / 100]);
}

int main(int argc, char **argv)
{
	struct sockaddr_in here, there;
	int streams = argc == 5 && !strcmp(argv[1], "stream");

	if (!streams && !(argc == 4 && !strcmp(argv[1], "trip"))) {
		fprintf(stderr, "raw stream SEGMENT COUNT MILLISECONDS | raw trip LENGTH COUNT\n");
		return 2;
	}
	int ours = endpoint(&here), theirs = endpoint(&there);
	pid_t child = fork();
	must(child >= 0, "fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		streams ? sink(theirs) : bounce(theirs);
	}
	close(theirs);
	if (streams)
		stream(ours, &there, atoi(argv[2]), atoi(argv[3]), atoi(argv[4]) / 1e3);
	else
		trip(ours, &there, atoi(argv[2]), atoi(argv[3]));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
