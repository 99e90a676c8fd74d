/* Mock libnvidia-ml.so.1 for tests. One file, libc only.
 *
 *   gcc -O1 -Wall -Wextra -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_mock.c
 *   (add -DNVML_MOCK_ABI -I <nvidia-nvml-dev>/include to compile against the official nvml.h)
 *
 * State is a text file named by $NVML_MOCK_STATE. It is looked at (stat) on every call and
 * re-read when it changed, so a test changes the "machine" of a running process by replacing
 * the file (write a temporary, rename over). No file = driver not loaded.
 * Lines ("key=value", values may be "quoted"; sizes take K/M/G; NA = value not available):
 *   system driver=550.54.15 nvml=12.550.54.15 cuda=12040 procv3=24   (32: the layout of early R535 drivers)
 *   gpu 0 name="NVIDIA A100" uuid=GPU-.. bus=00000000:07:00.0 total=80G reserved=600M used=2G
 *         util=35 memutil=12 temp=41 power=72000 plimit=400000 fan=NA cc=8.0 mig=0 maxmig=0 minor=0
 *   mig 0 0 uuid=MIG-.. name=.. gi=1 ci=0 total=10G reserved=14M used=1G sm=14 slices=1
 *   proc 0 pid=4242 type=C|G|M used=123M|NA gi=1 ci=0 sm=40 mem=10 enc=0 dec=0 ts=<usec>
 *   xid 0 code=79                                 one event, delivered once per (re)write
 *   fault fn=nvmlDeviceGetMemory* dev=0|0.1|* code=GPU_IS_LOST after=0 times=-1
 *   delay fn=* dev=* ms=2000
 * Processes may also speak for themselves: each file <state>.d/<pid> with lines "<gpu> <bytes>" is a process of that
 * id, as long as it lives; its bytes count as used. The simulated GPU writes them, so that what it reserves is seen here.
 * $NVML_MOCK_TRACE=<file>: one line per call "pid usec function device code".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef NVML_MOCK_ABI
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#else
typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef unsigned nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlClockType_t, nvmlPstates_t,
    nvmlComputeMode_t, nvmlEnableState_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
    nvmlPcieUtilCounter_t, nvmlBrandType_t, nvmlDeviceArchitecture_t;
typedef unsigned long long u64_;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;
typedef struct { u64_ total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64_ total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { u64_ bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned version; nvmlTemperatureSensors_t sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned pid; u64_ usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct { unsigned pid; u64_ usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_v2_t, nvmlProcessInfo_t;
typedef struct { unsigned pid; u64_ timeStamp; unsigned smUtil, memUtil, encUtil, decUtil; } nvmlProcessUtilizationSample_t;
typedef struct { u64_ timeStamp; unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil; } nvmlProcessUtilizationInfo_v1_t;
typedef struct { unsigned version, processSamplesCount; u64_ lastSeenTimeStamp; nvmlProcessUtilizationInfo_v1_t *procUtilArray; } nvmlProcessesUtilizationInfo_t;
typedef struct { unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount; u64_ memorySizeMB; } nvmlDeviceAttributes_t;
typedef struct { nvmlDevice_t device; u64_ eventType, eventData; unsigned gpuInstanceId, computeInstanceId; } nvmlEventData_t;
#endif

typedef unsigned long long u64;
#define NA64 0xFFFFFFFFFFFFFFFFull
#define NAU 0xFFFFFFFFu
#define API __attribute__((visibility("default")))
#define R(x) ((nvmlReturn_t)(x))
enum { OK = 0, UNINIT = 1, INVAL = 2, NOTSUP = 3, NOPERM = 4, NOTFOUND = 6, TOOSMALL = 7, NODRIVER = 9, TIMEOUT = 10 };
static const struct { int code; const char *name, *text; } ERR[] = {
    {0, "SUCCESS", "Success"}, {1, "UNINITIALIZED", "Uninitialized"}, {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"}, {4, "NO_PERMISSION", "Insufficient Permissions"}, {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"}, {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"}, {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"}, {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"}, {14, "CORRUPTED_INFOROM", "Corrupted infoROM"}, {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"}, {17, "OPERATING_SYSTEM", "The operating system has blocked the request."},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"}, {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"}, {21, "NO_DATA", "No data"}, {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {27, "NOT_READY", "System is not in ready state"}, {28, "GPU_NOT_FOUND", "No GPUs found"}, {999, "UNKNOWN", "Unknown Error"}};

#define MAXGPU 32
#define MAXMIG 8
#define MAXPROC 4096
#define MAXRULE 64
typedef struct { int on; char name[96], uuid[96], bus[32], serial[32]; u64 total, reserved, used, util, memutil, temp, power, plimit, fan, mig, maxmig, minor, gi, ci, sm, slices; int cc[2], nproc_ok; } Dev;
typedef struct { int gpu; unsigned pid, gi, ci, sm, mem, enc, dec; char type; u64 used, ts; } Proc;
typedef struct { char fn[64], dev[16]; int code, after, times, ms; } Rule;
typedef struct { Dev gpu[MAXGPU], mig[MAXGPU][MAXMIG]; Proc proc[MAXPROC]; Rule rule[MAXRULE]; int xid_gpu[16]; u64 xid[16];
                 int nproc, nrule, nxid, nxid_sent, ngpu, stride3; char driver[80], nvml[80]; u64 cuda; } State;

static State *S, *EMPTY; /* current state, guarded by L */
#define MAXLIVE 256
static Proc LIVE[MAXLIVE]; /* processes that speak for themselves, guarded by L */
static int nlive;
static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static int inits;
static struct stat seen;
static char gh[MAXGPU], mh[MAXGPU][MAXMIG]; /* addresses are the handles: stable over reloads */

/* ---- state file ---- */
static const char *get(char **kv, int n, const char *k) { size_t l = strlen(k); for (int i = 0; i < n; i++) if (!strncmp(kv[i], k, l) && kv[i][l] == '=') return kv[i] + l + 1; return NULL; }
static u64 num(char **kv, int n, const char *k, u64 dflt) {
    const char *v = get(kv, n, k); char *e;
    if (!v) return dflt;
    if (!strcmp(v, "NA")) return NA64;
    u64 x = strtoull(v, &e, 0);
    return *e == 'K' ? x << 10 : *e == 'M' ? x << 20 : *e == 'G' ? x << 30 : x;
}
static void str(char **kv, int n, const char *k, char *out, size_t len, const char *fmt, ...) {
    const char *v = get(kv, n, k); va_list a; va_start(a, fmt);
    if (v) snprintf(out, len, "%s", v); else vsnprintf(out, len, fmt, a);
    va_end(a);
}
static int split(char *s, char **out, int max) {
    int n = 0;
    while (n < max) {
        while (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\r') s++;
        if (!*s || *s == '#') break;
        char *d = s; int q = 0; out[n++] = s;
        for (; *s && (q || !strchr(" \t\r\n", *s)); s++) { if (*s == '"') q = !q; else *d++ = *s; }
        if (*s) s++;
        *d = 0;
    }
    return n;
}
static void dev(Dev *d, char **kv, int n, int g, int m) {
    d->on = 1;
    if (m < 0) { str(kv, n, "name", d->name, sizeof d->name, "Mock GPU %d", g); str(kv, n, "uuid", d->uuid, sizeof d->uuid, "GPU-00000000-0000-0000-0000-%012d", g); }
    else { str(kv, n, "name", d->name, sizeof d->name, "Mock GPU %d MIG 1g.10gb", g); str(kv, n, "uuid", d->uuid, sizeof d->uuid, "MIG-00000000-0000-0000-%04d-%012d", g, m); }
    str(kv, n, "bus", d->bus, sizeof d->bus, "00000000:%02X:00.0", g + 1); str(kv, n, "serial", d->serial, sizeof d->serial, "0");
    d->total = num(kv, n, "total", 16ull << 30); d->reserved = num(kv, n, "reserved", 0); d->used = num(kv, n, "used", 0);
    d->util = num(kv, n, "util", 0); d->memutil = num(kv, n, "memutil", 0); d->temp = num(kv, n, "temp", 40); d->power = num(kv, n, "power", 50000);
    d->plimit = num(kv, n, "plimit", 300000); d->fan = num(kv, n, "fan", NA64); d->mig = num(kv, n, "mig", NA64); d->maxmig = num(kv, n, "maxmig", d->mig == NA64 ? 0 : MAXMIG - 1);
    d->minor = num(kv, n, "minor", g); d->gi = num(kv, n, "gi", 0); d->ci = num(kv, n, "ci", 0); d->sm = num(kv, n, "sm", 14); d->slices = num(kv, n, "slices", 1);
    const char *cc = get(kv, n, "cc"); if (!cc || sscanf(cc, "%d.%d", &d->cc[0], &d->cc[1]) != 2) { d->cc[0] = 8; d->cc[1] = 0; }
}
static int code(const char *v) {
    if (!v) return 999;
    for (unsigned i = 0; i < sizeof ERR / sizeof *ERR; i++) if (!strcmp(v, ERR[i].name)) return ERR[i].code;
    return atoi(v);
}
static State *parse(FILE *f) {
    State *s = calloc(1, sizeof *s); char *line = NULL; size_t cap = 0;
    strcpy(s->driver, "550.54.15"); strcpy(s->nvml, "12.550.54.15"); s->cuda = 12040; s->stride3 = 24;
    while (getline(&line, &cap, f) > 0) {
        char *kv[40]; int n = split(line, kv, 40); if (!n) continue;
        int g = n > 1 ? atoi(kv[1]) : 0, m = n > 2 ? atoi(kv[2]) : 0; if (g < 0 || g >= MAXGPU) continue;
        if (!strcmp(kv[0], "system")) { str(kv, n, "driver", s->driver, 80, "%s", "550.54.15"); str(kv, n, "nvml", s->nvml, 80, "12.%s", s->driver); s->cuda = num(kv, n, "cuda", 12040); s->stride3 = num(kv, n, "procv3", 24); }
        else if (!strcmp(kv[0], "gpu")) { dev(&s->gpu[g], kv, n, g, -1); if (g >= s->ngpu) s->ngpu = g + 1; }
        else if (!strcmp(kv[0], "mig") && m >= 0 && m < MAXMIG) dev(&s->mig[g][m], kv, n, g, m);
        else if (!strcmp(kv[0], "proc") && s->nproc < MAXPROC) {
            Proc *p = &s->proc[s->nproc++]; const char *t = get(kv, n, "type");
            *p = (Proc){g, num(kv, n, "pid", 0), num(kv, n, "gi", NAU), num(kv, n, "ci", NAU), num(kv, n, "sm", 0), num(kv, n, "mem", 0), num(kv, n, "enc", 0), num(kv, n, "dec", 0), t ? *t : 'C', num(kv, n, "used", NA64), num(kv, n, "ts", 0)};
        } else if (!strcmp(kv[0], "xid") && s->nxid < 16) { s->xid_gpu[s->nxid] = g; s->xid[s->nxid++] = num(kv, n, "code", 79); }
        else if ((!strcmp(kv[0], "fault") || !strcmp(kv[0], "delay")) && s->nrule < MAXRULE) {
            Rule *r = &s->rule[s->nrule++]; str(kv, n, "fn", r->fn, sizeof r->fn, "*"); str(kv, n, "dev", r->dev, sizeof r->dev, "*");
            r->ms = num(kv, n, "ms", 0); r->after = num(kv, n, "after", 0); r->times = num(kv, n, "times", -1); r->code = *kv[0] == 'f' ? code(get(kv, n, "code")) : -1;
        } else fprintf(stderr, "nvml_mock: bad line: %s\n", kv[0]);
    }
    free(line); return s;
}
static void reload(void) { /* with L held */
    const char *path = getenv("NVML_MOCK_STATE"); struct stat st;
    if (!EMPTY) EMPTY = calloc(1, sizeof *EMPTY);
    if (!path || stat(path, &st)) { if (S != EMPTY) free(S); S = EMPTY; memset(&seen, 0, sizeof seen); return; }
    if (S && S != EMPTY && st.st_ino == seen.st_ino && st.st_size == seen.st_size && !memcmp(&st.st_mtim, &seen.st_mtim, sizeof st.st_mtim)) return;
    FILE *f = fopen(path, "re"); if (!f) { if (S != EMPTY) free(S); S = EMPTY; return; }
    State *n = parse(f); fclose(f); if (S != EMPTY) free(S); S = n; seen = st;
}
static void look_at_live(void) { /* with L held */
    const char *path = getenv("NVML_MOCK_STATE"); char name[4096]; struct dirent *e;
    nlive = 0;
    if (!path || snprintf(name, sizeof name, "%s.d", path) >= (int)sizeof name) return;
    DIR *dir = opendir(name); if (!dir) return;
    while ((e = readdir(dir)) && nlive < MAXLIVE) {
        char *end; long pid = strtol(e->d_name, &end, 10);
        if (*end || pid <= 0) continue;
        char file[4400]; snprintf(file, sizeof file, "/proc/%ld", pid); if (access(file, F_OK)) continue;
        snprintf(file, sizeof file, "%s/%s", name, e->d_name); FILE *f = fopen(file, "re"); if (!f) continue;
        int gpu; u64 bytes;
        while (nlive < MAXLIVE && fscanf(f, "%d %llu", &gpu, &bytes) == 2)
            if (gpu >= 0 && gpu < MAXGPU && bytes) LIVE[nlive++] = (Proc){gpu, (unsigned)pid, NAU, NAU, 0, 0, 0, 0, 'C', bytes, 0};
        fclose(f);
    }
    closedir(dir);
}
static u64 live_bytes(int g, int m) { u64 sum = 0; for (int i = 0; i < nlive; i++) if (m < 0 && LIVE[i].gpu == g) sum += LIVE[i].used; return sum; }
/* ---- one call: reload, faults, delay, handle. Leaves L held and returns OK, or returns a code with L free. ---- */
static int locate(nvmlDevice_t h, int *g, int *m) {
    char *p = (char *)h; *m = -1;
    if (p >= gh && p < gh + MAXGPU) *g = p - gh;
    else if (p >= &mh[0][0] && p < &mh[0][0] + sizeof mh) { int i = p - &mh[0][0]; *g = i / MAXMIG; *m = i % MAXMIG; }
    else return 0;
    return 1;
}
static void trace(const char *fn, const char *d, int rc) {
    const char *p = getenv("NVML_MOCK_TRACE"); FILE *f; struct timespec t;
    if (!p || !(f = fopen(p, "ae"))) return;
    clock_gettime(CLOCK_REALTIME, &t); fprintf(f, "%d %lld %s %s %d\n", getpid(), (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000, fn, d, rc); fclose(f);
}
static int enter(const char *fn, nvmlDevice_t h, int need, Dev **out, int *gi, int *mi) {
    int g = -1, m = -1, rc = OK, ms = 0; char tag[16] = "-";
    pthread_mutex_lock(&L); reload(); look_at_live();
    if (need > 0 && !locate(h, &g, &m)) rc = INVAL;
    if (need > 0 && rc == OK) snprintf(tag, sizeof tag, m < 0 ? "%d" : "%d.%d", g, m);
    for (int i = 0; i < S->nrule && need >= 0; i++) { /* need < 0: only look up; the rules run with the device */
        Rule *r = &S->rule[i];
        if (fnmatch(r->fn, fn, 0) || fnmatch(r->dev, tag, 0)) continue;
        if (r->code < 0) { ms += r->ms; continue; }
        if (r->after > 0) { r->after--; continue; }
        if (r->times == 0) continue;
        if (r->times > 0) r->times--;
        rc = r->code; break;
    }
    if (ms) { pthread_mutex_unlock(&L); struct timespec t = {ms / 1000, ms % 1000 * 1000000L}; while (nanosleep(&t, &t) && errno == EINTR); pthread_mutex_lock(&L); reload(); }
    if (strncmp(fn, "nvmlInit", 8) && !inits) rc = UNINIT;
    else if (rc == OK && S == EMPTY) rc = NODRIVER;
    if (rc == OK && need > 0) { Dev *d = m < 0 ? &S->gpu[g] : &S->mig[g][m]; if (!d->on) rc = INVAL; else { *out = d; *gi = g; *mi = m; } }
    if (need >= 0 || rc) trace(fn, tag, rc);
    if (rc) pthread_mutex_unlock(&L);
    return rc;
}
static int leave(int rc) { pthread_mutex_unlock(&L); return rc; }
#define FIND() int rc_ = enter(__func__, NULL, -1, NULL, NULL, NULL); if (rc_) return R(rc_)
#define SYS() int rc_ = enter(__func__, NULL, 0, NULL, NULL, NULL); if (rc_) return R(rc_)
#define DEV() Dev *d = NULL; int g = 0, m = 0; int rc_ = enter(__func__, device, 1, &d, &g, &m); (void)g; (void)m; if (rc_) return R(rc_)
#define DONE(rc) return R(leave(rc))
static int puts_(char *out, unsigned len, const char *s) { if (!out) return INVAL; if (strlen(s) + 1 > len) return TOOSMALL; strcpy(out, s); return OK; }
static int putu(unsigned *out, u64 v) { if (!out) return INVAL; if (v == NA64) return NOTSUP; *out = v; return OK; }

/* ---- library ---- */
static int init(const char *fn) { int rc = enter(fn, NULL, 0, NULL, NULL, NULL); if (rc) return rc; inits++; return leave(OK); }
API nvmlReturn_t nvmlInit_v2(void) { return R(init(__func__)); }
API nvmlReturn_t nvmlInit(void) { return R(init(__func__)); }
API nvmlReturn_t nvmlInitWithFlags(unsigned f) { (void)f; return R(init(__func__)); }
API nvmlReturn_t nvmlShutdown(void) { pthread_mutex_lock(&L); int rc = inits ? OK : UNINIT; if (inits) inits--; trace(__func__, "-", rc); DONE(rc); }
API const char *nvmlErrorString(nvmlReturn_t r) { for (unsigned i = 0; i < sizeof ERR / sizeof *ERR; i++) if (ERR[i].code == (int)r) return ERR[i].text; return "Unknown Error"; }
API nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned n) { SYS(); DONE(puts_(v, n, S->driver)); }
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned n) { SYS(); DONE(puts_(v, n, S->nvml)); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { SYS(); DONE(putu((unsigned *)v, S->cuda)); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) { SYS(); DONE(putu((unsigned *)v, S->cuda)); }
API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned n) {
    SYS(); char p[64], b[256] = ""; snprintf(p, sizeof p, "/proc/%u/cmdline", pid); FILE *f = fopen(p, "re");
    if (!f) DONE(NOTFOUND);
    b[fread(b, 1, sizeof b - 1, f)] = 0; fclose(f); if (!name || !n) DONE(INVAL);
    snprintf(name, n, "%s", b); DONE(OK);
}
static int count(unsigned *n) { unsigned c = 0; for (int i = 0; i < S->ngpu; i++) c += S->gpu[i].on; return putu(n, c); }
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { SYS(); DONE(count(n)); }
API nvmlReturn_t nvmlDeviceGetCount(unsigned *n) { SYS(); DONE(count(n)); }
static int handle(nvmlDevice_t *out, int g, int m) { /* faults on the device itself apply to getting its handle too */
    if (!out) return INVAL;
    *out = (nvmlDevice_t)(m < 0 ? &gh[g] : &mh[g][m]); return OK;
}
#define GUARD(h) do { leave(0); Dev *d_; int g_, m_; int e_ = enter(__func__, h, 1, &d_, &g_, &m_); if (e_) return R(e_); } while (0)
static int nth(unsigned i) { for (int g = 0; g < S->ngpu; g++) if (S->gpu[g].on && !i--) return g; return -1; }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out) { FIND(); int g = nth(i); if (g < 0) DONE(INVAL); GUARD((nvmlDevice_t)&gh[g]); DONE(handle(out, g, -1)); }
API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *u, nvmlDevice_t *out) {
    FIND(); if (!u) DONE(INVAL);
    for (int g = 0; g < S->ngpu; g++) {
        if (S->gpu[g].on && !strcmp(S->gpu[g].uuid, u)) { GUARD((nvmlDevice_t)&gh[g]); DONE(handle(out, g, -1)); }
        for (int m = 0; m < MAXMIG; m++) if (S->mig[g][m].on && !strcmp(S->mig[g][m].uuid, u)) { GUARD((nvmlDevice_t)&mh[g][m]); DONE(handle(out, g, m)); }
    }
    DONE(NOTFOUND);
}
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *b, nvmlDevice_t *out) {
    FIND(); unsigned a[3], c[3]; if (!b || sscanf(b, "%x:%x:%x", a, a + 1, a + 2) != 3) DONE(INVAL);
    for (int g = 0; g < S->ngpu; g++) if (S->gpu[g].on && sscanf(S->gpu[g].bus, "%x:%x:%x", c, c + 1, c + 2) == 3 && !memcmp(a, c, sizeof a)) { GUARD((nvmlDevice_t)&gh[g]); DONE(handle(out, g, -1)); }
    DONE(NOTFOUND);
}
/* ---- identity ---- */
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *s, unsigned n) { DEV(); DONE(puts_(s, n, d->name)); }
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *s, unsigned n) { DEV(); DONE(puts_(s, n, d->uuid)); }
API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *s, unsigned n) { DEV(); DONE(strcmp(d->serial, "0") ? puts_(s, n, d->serial) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *i) { DEV(); unsigned k = 0; for (int j = 0; j < g; j++) k += S->gpu[j].on; DONE(putu(i, m < 0 ? k : (unsigned)m)); }
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *i) { DEV(); DONE(m < 0 ? putu(i, d->minor) : INVAL); }
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *p) {
    DEV(); if (!p) DONE(INVAL); if (m >= 0) d = &S->gpu[g];
    memset(p, 0, sizeof *p); sscanf(d->bus, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    snprintf(p->busId, sizeof p->busId, "%08X:%02X:%02X.0", p->domain, p->bus & 0xff, p->device & 0x1f); snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:%02X.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0x1f);
    p->pciDeviceId = 0x20B210DE; DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *a, int *b) { DEV(); if (!a || !b) DONE(INVAL); *a = d->cc[0]; *b = d->cc[1]; DONE(OK); }
/* ---- memory ---- */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *o) { /* v1: reserved counts as used */
    DEV(); if (!o) DONE(INVAL); if (d->total == NA64) DONE(NOTSUP);
    u64 u = d->used + live_bytes(g, m) + d->reserved; o->total = d->total; o->used = u; o->free = d->total > u ? d->total - u : 0; DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *o) {
    DEV(); if (!o) DONE(INVAL); if (o->version != (sizeof *o | 2u << 24)) DONE(25); if (d->total == NA64) DONE(NOTSUP);
    u64 u = d->used + live_bytes(g, m) + d->reserved; o->total = d->total; o->used = u - d->reserved; o->reserved = d->reserved; o->free = d->total > u ? d->total - u : 0; DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *o) { DEV(); if (!o) DONE(INVAL); o->bar1Total = 256u << 20; o->bar1Used = 4u << 20; o->bar1Free = 252u << 20; DONE(OK); }
/* ---- load ---- */
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u) { DEV(); if (!u) DONE(INVAL); if (m >= 0 || d->mig == 1 || d->util == NA64) DONE(NOTSUP); u->gpu = d->util; u->memory = d->memutil; DONE(OK); }
static int codec(Dev *d, int m, unsigned *u, unsigned *p) { if (!u || !p) return INVAL; if (m >= 0 || d->mig == 1) return NOTSUP; *u = 0; *p = 167000; return OK; }
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *u, unsigned *p) { DEV(); DONE(codec(d, m, u, p)); }
API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *u, unsigned *p) { DEV(); DONE(codec(d, m, u, p)); }
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t s, unsigned *t) { DEV(); (void)s; DONE(m < 0 ? putu(t, d->temp) : INVAL); }
API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *t) { DEV(); if (!t) DONE(INVAL); if (t->version != (sizeof *t | 1u << 24)) DONE(25); DONE(m < 0 ? putu((unsigned *)&t->temperature, d->temp) : INVAL); }
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t k, unsigned *t) { DEV(); (void)k; DONE(m < 0 ? putu(t, 90) : INVAL); }
API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *p) { DEV(); DONE(m < 0 ? putu(p, d->power) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *p) { DEV(); DONE(m < 0 ? putu(p, d->plimit) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *p) { DEV(); DONE(m < 0 ? putu(p, d->plimit) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *p) { DEV(); DONE(m < 0 ? putu(p, d->fan) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t t, unsigned *p) { DEV(); (void)t; DONE(m < 0 ? putu(p, 1410) : NOTSUP); }
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t t, unsigned *p) { DEV(); (void)t; DONE(m < 0 ? putu(p, 1410) : NOTSUP); }
#define ENUM(fn, type, val) API nvmlReturn_t fn(nvmlDevice_t device, type *o) { DEV(); unsigned v; int rc = putu(o ? &v : NULL, val); if (!rc) *o = (type)v; DONE(rc); }
ENUM(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)
ENUM(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0)
ENUM(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, 1)
ENUM(nvmlDeviceGetDisplayMode, nvmlEnableState_t, 0)
ENUM(nvmlDeviceGetDisplayActive, nvmlEnableState_t, 0)
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t a, nvmlEccCounterType_t b, unsigned long long *n) { DEV(); (void)a; (void)b; if (!n) DONE(INVAL); *n = 0; DONE(OK); }
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t k, unsigned *v) { DEV(); (void)k; DONE(m < 0 ? putu(v, 0) : NOTSUP); }
/* ---- processes ---- */
static int listed(const Proc *p, const Dev *d, int g, int m, char type) { return p->gpu == g && p->type == type && (m < 0 || (p->gi == d->gi && p->ci == d->ci)); }
static void put_process(void *out, unsigned k, const Proc *p, int ver) {
    size_t size = ver == 3 ? (size_t)S->stride3 : 24;
    if (ver == 1) { ((nvmlProcessInfo_v1_t *)out)[k] = (nvmlProcessInfo_v1_t){p->pid, p->used}; return; }
    char *e = (char *)out + k * size; memset(e, 0, size);
    *(nvmlProcessInfo_v2_t *)(void *)e = (nvmlProcessInfo_v2_t){p->pid, p->used, p->gi, p->ci};
}
static int procs(Dev *d, int g, int m, char type, unsigned *n, void *out, int ver) {
    unsigned k = 0, have;
    if (!n) return INVAL;
    for (int i = 0; i < S->nproc; i++) k += listed(&S->proc[i], d, g, m, type);
    for (int i = 0; i < nlive; i++) k += listed(&LIVE[i], d, g, m, type);
    have = out ? *n : 0; *n = k;
    if (k > have) return TOOSMALL;
    k = 0;
    for (int i = 0; i < S->nproc && out; i++) if (listed(&S->proc[i], d, g, m, type)) put_process(out, k++, &S->proc[i], ver);
    for (int i = 0; i < nlive && out; i++) if (listed(&LIVE[i], d, g, m, type)) put_process(out, k++, &LIVE[i], ver);
    return OK;
}
#define PROCS(name, t) \
    API nvmlReturn_t name(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_v1_t *o) { DEV(); DONE(procs(d, g, m, t, n, o, 1)); } \
    API nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_v2_t *o) { DEV(); DONE(procs(d, g, m, t, n, o, 2)); } \
    API nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_t *o) { DEV(); DONE(procs(d, g, m, t, n, o, 3)); }
PROCS(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCS(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCS(nvmlDeviceGetMPSComputeRunningProcesses, 'M')
static u64 now_us(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000; }
static int samples(Dev *d, int g, int m, u64 since, unsigned *n, nvmlProcessUtilizationSample_t *o1, nvmlProcessUtilizationInfo_v1_t *o2) {
    unsigned k = 0, have; u64 t = now_us();
    if (!n) return INVAL;
    if (m >= 0 || d->mig == 1) return NOTSUP;
    have = o1 || o2 ? *n : 0;
    for (int w = 0; w < 2; w++, k = w == 1 ? 0 : k) {
        for (int i = 0; i < S->nproc; i++) {
            Proc *p = &S->proc[i]; u64 ts = p->ts ? p->ts : t;
            if (p->gpu != g || ts <= since || !(p->sm | p->mem | p->enc | p->dec)) continue;
            if (w && o1) o1[k] = (nvmlProcessUtilizationSample_t){p->pid, ts, p->sm, p->mem, p->enc, p->dec};
            if (w && o2) o2[k] = (nvmlProcessUtilizationInfo_v1_t){ts, p->pid, p->sm, p->mem, p->enc, p->dec, 0, 0};
            k++;
        }
        if (!w) { *n = k; if (!k) return NOTFOUND; if (k > have) return TOOSMALL; }
    }
    return OK;
}
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *o, unsigned *n, unsigned long long since) { DEV(); DONE(samples(d, g, m, since, n, o, NULL)); }
API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *o) { DEV(); if (!o) DONE(INVAL); DONE(samples(d, g, m, o->lastSeenTimeStamp, &o->processSamplesCount, NULL, o->procUtilArray)); }
/* ---- MIG ---- */
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *a, unsigned *b) { DEV(); if (m >= 0) DONE(INVAL); int rc = putu(a, d->mig); DONE(rc ? rc : putu(b, d->mig)); }
API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *v) { DEV(); DONE(putu(v, m >= 0)); }
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *v) { DEV(); DONE(m >= 0 ? putu(v, d->gi) : INVAL); }
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *v) { DEV(); DONE(m >= 0 ? putu(v, d->ci) : INVAL); }
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *v) { DEV(); DONE(m >= 0 ? INVAL : putu(v, d->maxmig)); }
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned i, nvmlDevice_t *out) { DEV(); if (m >= 0) DONE(INVAL); if (d->mig != 1) DONE(NOTSUP); if (i >= MAXMIG || !S->mig[g][i].on) DONE(NOTFOUND); DONE(handle(out, g, i)); }
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) { DEV(); DONE(m < 0 ? INVAL : handle(out, g, -1)); }
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *a) { DEV(); if (!a) DONE(INVAL); if (m < 0) DONE(NOTSUP); memset(a, 0, sizeof *a); a->multiprocessorCount = d->sm; a->gpuInstanceSliceCount = a->computeInstanceSliceCount = d->slices; a->memorySizeMB = d->total >> 20; DONE(OK); }
/* ---- events (Xid only) ---- */
API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) { SYS(); if (!s) DONE(INVAL); *s = (nvmlEventSet_t)calloc(1, sizeof(u64)); DONE(OK); }
API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { SYS(); free((void *)s); DONE(OK); }
API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *t) { DEV(); if (!t) DONE(INVAL); *t = 8; DONE(OK); }
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t s) { DEV(); if (!s) DONE(INVAL); if (types & ~0x1FFFull) DONE(NOTSUP); *(u64 *)(void *)s |= 1ull << g; DONE(OK); }
API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) {
    for (u64 end = now_us() + ms * 1000ull;;) {
        SYS(); if (!s || !e) DONE(INVAL);
        if (S->nxid_sent < S->nxid && (*(u64 *)(void *)s >> S->xid_gpu[S->nxid_sent] & 1)) { int i = S->nxid_sent++; *e = (nvmlEventData_t){(nvmlDevice_t)&gh[S->xid_gpu[i]], 8, S->xid[i], NAU, NAU}; DONE(OK); }
        leave(0); if (now_us() >= end) return R(TIMEOUT);
        usleep(5000);
    }
}
/* ---- exported by every driver, "not supported" here ---- */
#ifndef NVML_MOCK_ABI
#define STUB(fn) API nvmlReturn_t fn(void) { SYS(); DONE(NOTSUP); }
STUB(nvmlDeviceGetDriverModel) STUB(nvmlDeviceGetDriverModel_v2) STUB(nvmlDeviceGetFieldValues) STUB(nvmlDeviceGetConfComputeMemSizeInfo)
STUB(nvmlDeviceGetArchitecture) STUB(nvmlDeviceGetBrand) STUB(nvmlDeviceGetEccMode) STUB(nvmlDeviceGetTotalEnergyConsumption)
STUB(nvmlDeviceGetAddressingMode) STUB(nvmlDeviceGetRunningProcessDetailList) STUB(nvmlDeviceGetAccountingMode) STUB(nvmlDeviceGetNumFans)
STUB(nvmlDeviceGetHandleByUUIDV) STUB(nvmlDeviceGetHandleBySerial) STUB(nvmlDeviceGetFanSpeed_v2) STUB(nvmlDeviceGetVirtualizationMode)
#endif
