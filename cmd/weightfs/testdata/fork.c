/* fork FILE TRUTH: maps FILE shared and privately, forks, and has parent and children compare what they see with TRUTH; children write to
 * their private copies, which nobody else may see. It prints "right", or what was wrong. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t size;

static unsigned char *map(const char *name, int prot, int flags) {
	int fd = open(name, O_RDONLY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(name);
		exit(2);
	}
	size = st.st_size;
	void *p = mmap(NULL, size, prot, flags, fd, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	close(fd);
	return p;
}

/* same compares from a place of its own on, so that the processes fault at different pages at a time. */
static int same(const unsigned char *got, const unsigned char *want, size_t from) {
	return memcmp(got + from, want + from, size - from) == 0 && memcmp(got, want, from) == 0;
}

enum { children = 4 };

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	unsigned char *truth = map(argv[2], PROT_READ, MAP_PRIVATE);
	unsigned char *shared = map(argv[1], PROT_READ, MAP_SHARED);
	unsigned char *own = map(argv[1], PROT_READ | PROT_WRITE, MAP_PRIVATE);
	if (own[size / 2] != truth[size / 2]) { /* a page that is there before the fork */
		puts("WRONG before the fork");
		return 1;
	}
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("fork");
			return 2;
		}
		if (pid == 0) {
			size_t from = size / children * i;
			int ok = same(shared, truth, from) && same(own, truth, from);
			own[size / 2] ^= 0xff;
			own[from] ^= 0xff;
			_exit(ok && same(shared, truth, from) && own[from] != truth[from] ? 0 : 1);
		}
	}
	int bad = !same(own, truth, size / 3) || !same(shared, truth, size / 3), status;
	for (int i = 0; i < children; i++)
		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			bad = 1;
	if (bad || !same(own, truth, 0) || !same(shared, truth, 0)) {
		puts("WRONG");
		return 1;
	}
	puts("right");
	return 0;
}
