/* Preloaded into a process, a socket takes nothing of one send in five, and a part of another: what a kernel short of memory may do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

static ssize_t (*real_send)(int, const void *, size_t, int);
static unsigned state = 12345;

ssize_t send(int socket, const void *bytes, size_t length, int flags) {
  if (!real_send) real_send = dlsym(RTLD_NEXT, "send");
  state = state * 1103515245 + 12345;
  unsigned chance = (state >> 16) % 100;
  if (chance < 20) {
    errno = EAGAIN;
    return -1;
  }
  if (chance < 40 && length > 1) length = 1 + (state >> 8) % (length - 1);
  return real_send(socket, bytes, length, flags);
}
