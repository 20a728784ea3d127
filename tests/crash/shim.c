/* Counts the calls of a process that change files, and at one of them kills the process, cuts the call short, cuts the
 * power of its file system, or lets the call fail. Loaded by LD_PRELOAD, and idle until crash_arm() is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { COUNT, KILL, HALF, FAIL_ONCE, FAIL_ON, POWER };
enum verdict { PASS, CUT, FAIL, LAST };

static atomic_long calls;
static long target;
static enum mode mode;
static int failure;
static int disk = -1;
static int labels = -1;
static atomic_int armed;

#define FICLONE _IOW(0x94, 9, int)
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, unsigned int)
#define NO_LOG_FLUSH 2u

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

/* Say what is to become of a call. `partial` says that the call can be cut short. */
static enum verdict met(const char *name, int partial) {
  if (!atomic_load(&armed)) return PASS;
  long number = atomic_fetch_add(&calls, 1) + 1;
  if (labels >= 0) {
    char line[96];
    int length = snprintf(line, sizeof line, "%ld %s\n", number, name);
    syscall(SYS_write, labels, line, (size_t)length);
  }
  if (mode == COUNT || number < target || (number > target && mode != FAIL_ON)) return PASS;
  switch (mode) {
    case KILL: die(); break;
    case HALF: return partial ? CUT : LAST;
    case POWER: {
      unsigned int how = NO_LOG_FLUSH;
      syscall(SYS_ioctl, disk, EXT4_IOC_SHUTDOWN, &how);
      die();
      break;
    }
    case FAIL_ONCE:
    case FAIL_ON: errno = failure; return FAIL;
    default: break;
  }
  return PASS;
}

/* A call that cannot be cut short is done whole, and the process dies right after it. The verdict says which call that
   is: the count does not, since another thread may have made a call meanwhile. */
static void after(enum verdict verdict) {
  int kept = errno;
  if (verdict == LAST) die();
  errno = kept;
}

void crash_arm(long at, int how, int error, const char *root, int label_fd) {
  target = at;
  mode = how;
  failure = error;
  labels = label_fd;
  disk = how == POWER ? (int)syscall(SYS_openat, AT_FDCWD, root, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
  atomic_store(&calls, 0);
  atomic_store(&armed, 1);
}

void crash_disarm(void) { atomic_store(&armed, 0); }

static int is_file(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WHOLE(name, parameters, arguments) \
  int name parameters { \
    REAL(name); \
    enum verdict verdict = met(#name, 0); \
    if (verdict == FAIL) return -1; \
    int result = real arguments; \
    after(verdict); \
    return result; \
  }

WHOLE(rename, (const char *a, const char *b), (a, b))
WHOLE(renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
WHOLE(renameat2, (int d, const char *a, int e, const char *b, unsigned int f), (d, a, e, b, f))
WHOLE(unlink, (const char *a), (a))
WHOLE(unlinkat, (int d, const char *a, int f), (d, a, f))
WHOLE(mkdir, (const char *a, mode_t m), (a, m))
WHOLE(mkdirat, (int d, const char *a, mode_t m), (d, a, m))
WHOLE(rmdir, (const char *a), (a))
WHOLE(link, (const char *a, const char *b), (a, b))
WHOLE(linkat, (int d, const char *a, int e, const char *b, int f), (d, a, e, b, f))
WHOLE(symlink, (const char *a, const char *b), (a, b))
WHOLE(symlinkat, (const char *a, int d, const char *b), (a, d, b))
WHOLE(chmod, (const char *a, mode_t m), (a, m))
WHOLE(fchmod, (int d, mode_t m), (d, m))
WHOLE(fchmodat, (int d, const char *a, mode_t m, int f), (d, a, m, f))
WHOLE(utimensat, (int d, const char *a, const struct timespec t[2], int f), (d, a, t, f))
WHOLE(futimens, (int d, const struct timespec t[2]), (d, t))
WHOLE(truncate, (const char *a, off_t n), (a, n))
WHOLE(truncate64, (const char *a, off64_t n), (a, n))
WHOLE(ftruncate, (int d, off_t n), (d, n))
WHOLE(ftruncate64, (int d, off64_t n), (d, n))
WHOLE(fsync, (int d), (d))
WHOLE(fdatasync, (int d), (d))
WHOLE(syncfs, (int d), (d))

#define WRITING(name, parameters, short_arguments, arguments, fd) \
  ssize_t name parameters { \
    REAL(name); \
    if (!is_file(fd)) return real arguments; \
    enum verdict verdict = met(#name, 1); \
    if (verdict == FAIL) return -1; \
    if (verdict == CUT) { \
      if (n > 1) real short_arguments; \
      die(); \
    } \
    return real arguments; \
  }

WRITING(write, (int d, const void *b, size_t n), (d, b, n / 2), (d, b, n), d)
WRITING(pwrite, (int d, const void *b, size_t n, off_t o), (d, b, n / 2, o), (d, b, n, o), d)
WRITING(pwrite64, (int d, const void *b, size_t n, off64_t o), (d, b, n / 2, o), (d, b, n, o), d)
WRITING(sendfile, (int d, int s, off_t *o, size_t n), (d, s, o, n / 2), (d, s, o, n), d)
WRITING(sendfile64, (int d, int s, off64_t *o, size_t n), (d, s, o, n / 2), (d, s, o, n), d)
WRITING(copy_file_range, (int s, off64_t *p, int d, off64_t *o, size_t n, unsigned int f), (s, p, d, o, n / 2, f),
        (s, p, d, o, n, f), d)

int ioctl(int d, unsigned long request, ...) {
  static int (*real)(int, unsigned long, ...);
  if (!real) real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
  va_list more;
  va_start(more, request);
  void *argument = va_arg(more, void *);
  va_end(more);
  if (request != FICLONE) return real(d, request, argument);
  enum verdict verdict = met("ficlone", 0);
  if (verdict == FAIL) return -1;
  int result = real(d, request, argument);
  after(verdict);
  return result;
}

ssize_t writev(int d, const struct iovec *v, int n) {
  REAL(writev);
  if (!is_file(d)) return real(d, v, n);
  enum verdict verdict = met("writev", 1);
  if (verdict == FAIL) return -1;
  if (verdict == CUT) {
    if (n > 1) real(d, v, n / 2);
    die();
  }
  return real(d, v, n);
}

#define MODE_OF(flags) \
  mode_t m = 0; \
  if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list more; \
    va_start(more, flags); \
    m = va_arg(more, mode_t); \
    va_end(more); \
  }

#define OPENING(name, parameters, arguments) \
  int name parameters { \
    REAL(name); \
    MODE_OF(flags) \
    if (!(flags & (O_CREAT | O_TRUNC))) return real arguments; \
    enum verdict verdict = met(#name, 0); \
    if (verdict == FAIL) return -1; \
    int result = real arguments; \
    after(verdict); \
    return result; \
  }

OPENING(open, (const char *a, int flags, ...), (a, flags, m))
OPENING(open64, (const char *a, int flags, ...), (a, flags, m))
OPENING(openat, (int d, const char *a, int flags, ...), (d, a, flags, m))
OPENING(openat64, (int d, const char *a, int flags, ...), (d, a, flags, m))
