/*
 * Keeps a copy of each file below POWER_CUT_LIVE in POWER_CUT_DURABLE with the content of its last fsync, as a disk
 * would have it after a power cut. Preloaded into the servers of a scenario: LD_PRELOAD=durable.so.
 *
 * fsync and fdatasync copy the blocks of the file that differ. rename and unlink are applied to the copy at once, which
 * is one of the outcomes that a journaling file system allows; a file that was never synced has no copy to rename.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 65536

/* Writes the path of the copy. Returns 0 if the file is not below the live folder. */
static int copy_path(const char *path, char *out) {
  const char *live = getenv("POWER_CUT_LIVE"), *durable = getenv("POWER_CUT_DURABLE");
  if (!live || !durable) return 0;
  size_t length = strlen(live);
  if (strncmp(path, live, length) != 0 || path[length] != '/') return 0;
  return snprintf(out, PATH_MAX, "%s%s", durable, path + length) < PATH_MAX;
}

static int copy_path_at(const char *path, char *out) {
  char whole[PATH_MAX], folder[PATH_MAX];
  if (path[0] == '/') return copy_path(path, out);
  if (!getcwd(folder, sizeof folder)) return 0;
  if (snprintf(whole, sizeof whole, "%s/%s", folder, path) >= (int)sizeof whole) return 0;
  return copy_path(whole, out);
}

static void make_folders(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    mkdir(path, 0777);
    *at = '/';
  }
}

static void keep(int fd) {
  char link[64], path[PATH_MAX], copy[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  struct stat info;
  if (!copy_path(path, copy) || fstat(fd, &info) != 0) return;
  make_folders(copy);
  if (S_ISDIR(info.st_mode)) {
    mkdir(copy, 0777);
    return;
  }
  if (!S_ISREG(info.st_mode)) return;
  int from = open(path, O_RDONLY), to = open(copy, O_RDWR | O_CREAT, 0600);
  if (from >= 0 && to >= 0) {
    char *new = malloc(BLOCK), *old = malloc(BLOCK);
    flock(to, LOCK_EX);
    for (off_t at = 0;; at += BLOCK) {
      ssize_t read_new = pread(from, new, BLOCK, at);
      if (read_new <= 0) break;
      ssize_t read_old = pread(to, old, BLOCK, at);
      if (read_old != read_new || memcmp(new, old, read_new) != 0)
        if (pwrite(to, new, read_new, at) != read_new) abort();
    }
    if (fstat(from, &info) == 0 && ftruncate(to, info.st_size) != 0) abort();
    free(new);
    free(old);
  }
  if (from >= 0) close(from);
  if (to >= 0) close(to);
}

/* Update the copy before fsync returns, so that it always contains the bytes that the caller takes for durable. */
#define SYNC(name)                                                    \
  int name(int fd) {                                                  \
    int saved = errno;                                                \
    keep(fd);                                                         \
    errno = saved;                                                    \
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name);         \
    return real(fd);                                                  \
  }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  int result = real(from, to), saved = errno;
  char old[PATH_MAX], new[PATH_MAX];
  if (result == 0 && copy_path_at(from, old) && copy_path_at(to, new)) {
    make_folders(new);
    if (real(old, new) != 0) unlink(new);
  }
  errno = saved;
  return result;
}

int unlink(const char *path) {
  int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
  int result = real(path), saved = errno;
  char copy[PATH_MAX];
  if (result == 0 && copy_path_at(path, copy)) real(copy);
  errno = saved;
  return result;
}
