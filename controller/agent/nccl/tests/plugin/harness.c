/* A C program that loads the plugin as NCCL does, with declarations of its own: what a C compiler
 * lays out must be what the plugin reads. Sends `ITERATIONS` times one operation of two channels to
 * rank 1 and exits; the test beside it reads what the agent receives.
 *
 * The declarations follow the public headers profiler_v4.h and profiler_v6.h of NCCL 2.30. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ITERATIONS 50
#define COLL (1 << 1)
#define PROXY_OP (1 << 3)
#define PROXY_STEP (1 << 4)
#define SEND_WAIT 9

struct coll {
  uint64_t seq;
  const char* func;
  const void* send;
  void* recv;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algo;
  const char* proto;
};
struct proxy_op {
  pid_t pid;
  uint8_t channel;
  int peer;
  int steps;
  int chunk;
  int is_send;
};
union detail {
  struct coll coll;
  struct proxy_op proxy_op;
  uint8_t room[80];
};
struct event_v4 {
  uint8_t type;
  void* parent;
  int rank;
  union detail detail;
};
struct event_v6 {
  uint64_t type;
  void* parent;
  int rank;
  union detail detail;
};
union state_args {
  size_t trans_size;
  void* data;
};
struct profiler {
  const char* name;
  void* init;
  int (*start)(void*, void**, void*);
  int (*stop)(void*);
  int (*record)(void*, int, union state_args*);
  int (*finalize)(void*);
};
typedef int (*init_v4)(void**, int*, const char*, uint64_t, int, int, int, void*);
typedef int (*init_v6)(void**, uint64_t, int*, const char*, int, int, int, void*);

static struct profiler* plugin;
static int is_v4;
static void* context;

static void* start(uint64_t type, void* parent, union detail detail) {
  void* handle = NULL;
  struct event_v4 four = {(uint8_t)type, parent, 0, detail};
  struct event_v6 six = {type, parent, 0, detail};
  if (plugin->start(context, &handle, is_v4 ? (void*)&four : (void*)&six) != 0) return NULL;
  return handle;
}

static void send_channel(void* operation, int channel) {
  union detail detail;
  memset(&detail, 0, sizeof detail);
  detail.proxy_op = (struct proxy_op){getpid(), (uint8_t)channel, 1, 2, 1 << 19, 1};
  void* transfer = start(PROXY_OP, operation, detail);
  for (int index = 0; index < 2; index++) {
    void* step = start(PROXY_STEP, transfer, detail);
    union state_args args = {.trans_size = index == 0 ? 1 << 19 : 1000};
    plugin->record(step, SEND_WAIT, &args);
    plugin->stop(step);
  }
  plugin->stop(transfer);
}

int main(int argc, char** argv) {
  int mask = 0, result;
  if (argc != 3) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
  plugin = dlsym(library, argv[2]);
  if (plugin == NULL || strcmp(plugin->name, "Crux") != 0) return 4;
  is_v4 = strcmp(argv[2], "ncclProfiler_v4") == 0;
  result = is_v4 ? ((init_v4)plugin->init)(&context, &mask, "c", 42, 2, 2, 0, NULL)
                 : ((init_v6)plugin->init)(&context, 42, &mask, "c", 2, 2, 0, NULL);
  if (result != 0 || context == NULL || mask == 0) return 5;
  for (int iteration = 0; iteration < ITERATIONS; iteration++) {
    union detail detail;
    memset(&detail, 0, sizeof detail);
    detail.coll.func = "AllReduce";
    detail.coll.count = 1000;
    detail.coll.datatype = "ncclFloat16";
    void* operation = start(COLL, NULL, detail);
    send_channel(operation, 0);
    send_channel(operation, 1);
    plugin->stop(operation);
    usleep(10000);
  }
  plugin->finalize(context);
  /* NCCL closes the library with the last communicator; the plugin's thread must survive that. */
  dlclose(library);
  usleep(300000);
  return 0;
}
