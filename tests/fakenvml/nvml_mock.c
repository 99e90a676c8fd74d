/* Mock libnvidia-ml.so.1 for tests, libc only. The machine that it shows, and how to change it: machine.h.
 *
 *   gcc -O1 -Wall -Wextra -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_mock.c
 *   (add -DNVML_MOCK_ABI -I <nvidia-nvml-dev>/include to compile against the official nvml.h)
 *
 * The state file is looked at (stat) on every call and re-read when it changed, so a test changes the machine of a
 * running process by replacing it. Handles stay valid over such changes, as they do in the driver.
 * $NVML_MOCK_TRACE=<file>: one line per call "pid usec function device code".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

#ifdef NVML_MOCK_ABI
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#else
typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef unsigned nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlClockType_t, nvmlPstates_t,
    nvmlComputeMode_t, nvmlEnableState_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlPcieUtilCounter_t,
    nvmlBrandType_t, nvmlDeviceArchitecture_t;
typedef unsigned long long u64_;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    u64_ total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned version;
    u64_ total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    u64_ bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;
typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;
typedef struct {
    unsigned version;
    nvmlTemperatureSensors_t sensorType;
    int temperature;
} nvmlTemperature_t;
typedef struct {
    unsigned pid;
    u64_ usedGpuMemory;
} nvmlProcessInfo_v1_t;
typedef struct {
    unsigned pid;
    u64_ usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t, nvmlProcessInfo_t;
typedef struct {
    unsigned pid;
    u64_ timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
    u64_ timeStamp;
    unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;
typedef struct {
    unsigned version, processSamplesCount;
    u64_ lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_t;
typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64_ memorySizeMB;
} nvmlDeviceAttributes_t;
typedef struct {
    nvmlDevice_t device;
    u64_ eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
#endif

#define API __attribute__((visibility("default")))
#define R(x) ((nvmlReturn_t)(x))
enum { OK = 0, UNINIT = 1, INVAL = 2, NOTSUP = 3, NOPERM = 4, NOTFOUND = 6, TOOSMALL = 7, NODRIVER = 9, TIMEOUT = 10 };

static Machine *S, *EMPTY; /* the machine now; the one without a driver. Guarded by L, as are the next three */
static Live live;
static int inits; /* nvmlInit is counted */
static struct stat seen;
static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static char gh[MAXGPU], mh[MAXGPU][MAXMIG]; /* addresses are the handles: stable over reloads */

/* ---- the state file ---- */
static void reload(void) { /* with L held */
    const char *path = getenv("NVML_MOCK_STATE");
    struct stat st;
    if (!EMPTY) EMPTY = calloc(1, sizeof *EMPTY);
    if (!path || stat(path, &st)) {
        if (S != EMPTY) free(S);
        S = EMPTY;
        memset(&seen, 0, sizeof seen);
        return;
    }
    if (S && S != EMPTY && st.st_ino == seen.st_ino && st.st_size == seen.st_size &&
        !memcmp(&st.st_mtim, &seen.st_mtim, sizeof st.st_mtim))
        return;
    Machine *n = read_machine(path);
    if (S != EMPTY) free(S);
    S = n ? n : EMPTY;
    seen = st;
}
static void look(void) { /* with L held */
    reload();
    read_live(&live, getenv("NVML_MOCK_STATE"), 0);
}
/* ---- one call: reload, faults, delay, handle. Leaves L held and returns OK, or returns a code with L free. ---- */
static int locate(nvmlDevice_t h, int *g, int *m) {
    char *p = (char *)h;
    *m = -1;
    if (p >= gh && p < gh + MAXGPU)
        *g = p - gh;
    else if (p >= &mh[0][0] && p < &mh[0][0] + sizeof mh) {
        int i = p - &mh[0][0];
        *g = i / MAXMIG;
        *m = i % MAXMIG;
    } else
        return 0;
    return 1;
}
static void trace(const char *fn, const char *d, int rc) {
    const char *p = getenv("NVML_MOCK_TRACE");
    FILE *f;
    struct timespec t;
    if (!p || !(f = fopen(p, "ae"))) return;
    clock_gettime(CLOCK_REALTIME, &t);
    fprintf(f, "%d %lld %s %s %d\n", getpid(), (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000, fn, d, rc);
    fclose(f);
}
static int enter(const char *fn, nvmlDevice_t h, int need, Device **out, int *gi, int *mi) {
    int g = -1, m = -1, rc = OK, ms = 0;
    char tag[16] = "-";
    pthread_mutex_lock(&L);
    look();
    if (need > 0 && !locate(h, &g, &m)) rc = INVAL;
    if (need > 0 && rc == OK) snprintf(tag, sizeof tag, m < 0 ? "%d" : "%d.%d", g, m);
    for (int i = 0; i < S->nrule && need >= 0; i++) { /* need < 0: only look up; the rules run with the device */
        Rule *r = &S->rule[i];
        if (fnmatch(r->fn, fn, 0) || fnmatch(r->dev, tag, 0)) continue;
        if (r->code < 0) {
            ms += r->ms;
            continue;
        }
        if (r->after > 0) {
            r->after--;
            continue;
        }
        if (r->times == 0) continue;
        if (r->times > 0) r->times--;
        rc = r->code;
        break;
    }
    if (ms) {
        pthread_mutex_unlock(&L);
        struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
        while (nanosleep(&t, &t) && errno == EINTR);
        pthread_mutex_lock(&L);
        look();
    }
    if (strncmp(fn, "nvmlInit", 8) && !inits)
        rc = UNINIT;
    else if (rc == OK && S == EMPTY)
        rc = NODRIVER;
    if (rc == OK && need > 0) {
        Device *d = m < 0 ? &S->gpu[g] : &S->mig[g][m];
        if (!d->on)
            rc = INVAL;
        else {
            *out = d;
            *gi = g;
            *mi = m;
        }
    }
    if (need >= 0 || rc) trace(fn, tag, rc);
    if (rc) pthread_mutex_unlock(&L);
    return rc;
}
static int leave(int rc) {
    pthread_mutex_unlock(&L);
    return rc;
}
/* How each function begins: one that looks a device up, one of the system, one of a device. And how it ends. */
#define FIND()                                                                                                         \
    int rc_ = enter(__func__, NULL, -1, NULL, NULL, NULL);                                                             \
    if (rc_) return R(rc_)
#define SYS()                                                                                                          \
    int rc_ = enter(__func__, NULL, 0, NULL, NULL, NULL);                                                              \
    if (rc_) return R(rc_)
#define DEV()                                                                                                          \
    Device *d = NULL;                                                                                                  \
    int g = 0, m = 0;                                                                                                  \
    int rc_ = enter(__func__, device, 1, &d, &g, &m);                                                                  \
    (void)g;                                                                                                           \
    (void)m;                                                                                                           \
    if (rc_) return R(rc_)
#define DONE(rc) return R(leave(rc))
static int puts_(char *out, unsigned len, const char *s) {
    if (!out) return INVAL;
    if (strlen(s) + 1 > len) return TOOSMALL;
    strcpy(out, s);
    return OK;
}
static int putu(unsigned *out, u64 v) {
    if (!out) return INVAL;
    if (v == NA64) return NOTSUP;
    *out = v;
    return OK;
}

/* ---- library ---- */
static int init(const char *fn) {
    int rc = enter(fn, NULL, 0, NULL, NULL, NULL);
    if (rc) return rc;
    inits++;
    return leave(OK);
}
API nvmlReturn_t nvmlInit_v2(void) { return R(init(__func__)); }
API nvmlReturn_t nvmlInit(void) { return R(init(__func__)); }
API nvmlReturn_t nvmlInitWithFlags(unsigned f) {
    (void)f;
    return R(init(__func__));
}
API nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&L);
    int rc = inits ? OK : UNINIT;
    if (inits) inits--;
    trace(__func__, "-", rc);
    DONE(rc);
}
API const char *nvmlErrorString(nvmlReturn_t r) {
    for (int i = 0; i < NVML_ERROR_COUNT; i++)
        if (NVML_ERRORS[i].code == (int)r) return NVML_ERRORS[i].text;
    return "Unknown Error";
}
API nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned n) {
    SYS();
    DONE(puts_(v, n, S->driver));
}
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned n) {
    SYS();
    DONE(puts_(v, n, S->nvml));
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) {
    SYS();
    DONE(putu((unsigned *)v, S->cuda));
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) {
    SYS();
    DONE(putu((unsigned *)v, S->cuda));
}
API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned n) {
    SYS();
    char p[64], b[256] = "";
    snprintf(p, sizeof p, "/proc/%u/cmdline", pid);
    FILE *f = fopen(p, "re");
    if (!f) DONE(NOTFOUND);
    b[fread(b, 1, sizeof b - 1, f)] = 0;
    fclose(f);
    if (!name || !n) DONE(INVAL);
    snprintf(name, n, "%s", b);
    DONE(OK);
}
static int count(unsigned *n) {
    unsigned c = 0;
    for (int i = 0; i < S->ngpu; i++) c += S->gpu[i].on;
    return putu(n, c);
}
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) {
    SYS();
    DONE(count(n));
}
API nvmlReturn_t nvmlDeviceGetCount(unsigned *n) {
    SYS();
    DONE(count(n));
}
static int handle(nvmlDevice_t *out, int g, int m) {
    if (!out) return INVAL;
    *out = (nvmlDevice_t)(m < 0 ? &gh[g] : &mh[g][m]);
    return OK;
}
/* The faults and the delay of the device that was found, before its handle is given out. */
#define GUARD(h)                                                                                                       \
    do {                                                                                                               \
        leave(0);                                                                                                      \
        Device *d_;                                                                                                    \
        int g_, m_;                                                                                                    \
        int e_ = enter(__func__, h, 1, &d_, &g_, &m_);                                                                 \
        if (e_) return R(e_);                                                                                          \
    } while (0)
static int nth(unsigned i) {
    for (int g = 0; g < S->ngpu; g++)
        if (S->gpu[g].on && !i--) return g;
    return -1;
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out) {
    FIND();
    int g = nth(i);
    if (g < 0) DONE(INVAL);
    GUARD((nvmlDevice_t)&gh[g]);
    DONE(handle(out, g, -1));
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *out) {
    return nvmlDeviceGetHandleByIndex_v2(i, out);
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *u, nvmlDevice_t *out) {
    FIND();
    if (!u) DONE(INVAL);
    for (int g = 0; g < S->ngpu; g++) {
        if (S->gpu[g].on && !strcmp(S->gpu[g].uuid, u)) {
            GUARD((nvmlDevice_t)&gh[g]);
            DONE(handle(out, g, -1));
        }
        for (int m = 0; m < MAXMIG; m++)
            if (S->mig[g][m].on && !strcmp(S->mig[g][m].uuid, u)) {
                GUARD((nvmlDevice_t)&mh[g][m]);
                DONE(handle(out, g, m));
            }
    }
    DONE(NOTFOUND);
}
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *b, nvmlDevice_t *out) {
    FIND();
    unsigned a[3], c[3];
    if (!b || sscanf(b, "%x:%x:%x", a, a + 1, a + 2) != 3) DONE(INVAL);
    for (int g = 0; g < S->ngpu; g++)
        if (S->gpu[g].on && sscanf(S->gpu[g].bus, "%x:%x:%x", c, c + 1, c + 2) == 3 && !memcmp(a, c, sizeof a)) {
            GUARD((nvmlDevice_t)&gh[g]);
            DONE(handle(out, g, -1));
        }
    DONE(NOTFOUND);
}

/* ---- identity ---- */
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *s, unsigned n) {
    DEV();
    DONE(puts_(s, n, d->name));
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *s, unsigned n) {
    DEV();
    DONE(puts_(s, n, d->uuid));
}
API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *s, unsigned n) {
    DEV();
    DONE(strcmp(d->serial, "0") ? puts_(s, n, d->serial) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *i) {
    DEV();
    unsigned k = 0;
    for (int j = 0; j < g; j++) k += S->gpu[j].on;
    DONE(putu(i, m < 0 ? k : (unsigned)m));
}
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *i) {
    DEV();
    DONE(m < 0 ? putu(i, d->minor) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *p) {
    DEV();
    if (!p) DONE(INVAL);
    if (m >= 0) d = &S->gpu[g];
    memset(p, 0, sizeof *p);
    sscanf(d->bus, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    snprintf(p->busId, sizeof p->busId, "%08X:%02X:%02X.0", p->domain, p->bus & 0xff, p->device & 0x1f);
    snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:%02X.0", p->domain & 0xffff, p->bus & 0xff,
             p->device & 0x1f);
    p->pciDeviceId = 0x20B210DE;
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *a, int *b) {
    DEV();
    if (!a || !b) DONE(INVAL);
    *a = d->cc[0];
    *b = d->cc[1];
    DONE(OK);
}

/* ---- memory ---- */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *o) { /* v1: reserved counts as used */
    DEV();
    if (!o) DONE(INVAL);
    if (d->total == NA64) DONE(NOTSUP);
    u64 u = d->used + (m < 0 ? live_bytes(&live, g) : 0) + d->reserved;
    o->total = d->total;
    o->used = u;
    o->free = d->total > u ? d->total - u : 0;
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *o) {
    DEV();
    if (!o) DONE(INVAL);
    if (o->version != (sizeof *o | 2u << 24)) DONE(25);
    if (d->total == NA64) DONE(NOTSUP);
    u64 u = d->used + (m < 0 ? live_bytes(&live, g) : 0) + d->reserved;
    o->total = d->total;
    o->used = u - d->reserved;
    o->reserved = d->reserved;
    o->free = d->total > u ? d->total - u : 0;
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *o) {
    DEV();
    if (!o) DONE(INVAL);
    o->bar1Total = 256u << 20;
    o->bar1Used = 4u << 20;
    o->bar1Free = 252u << 20;
    DONE(OK);
}

/* ---- load ---- */
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u) {
    DEV();
    if (!u) DONE(INVAL);
    if (m >= 0 || d->mig == 1 || d->util == NA64) DONE(NOTSUP);
    u->gpu = d->util;
    u->memory = d->memutil;
    DONE(OK);
}
static int codec(Device *d, int m, unsigned *u, unsigned *p) {
    if (!u || !p) return INVAL;
    if (m >= 0 || d->mig == 1) return NOTSUP;
    *u = 0;
    *p = 167000;
    return OK;
}
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *u, unsigned *p) {
    DEV();
    DONE(codec(d, m, u, p));
}
API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *u, unsigned *p) {
    DEV();
    DONE(codec(d, m, u, p));
}
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t s, unsigned *t) {
    DEV();
    (void)s;
    DONE(m < 0 ? putu(t, d->temp) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *t) {
    DEV();
    if (!t) DONE(INVAL);
    if (t->version != (sizeof *t | 1u << 24)) DONE(25);
    DONE(m < 0 ? putu((unsigned *)&t->temperature, d->temp) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t k, unsigned *t) {
    DEV();
    (void)k;
    DONE(m < 0 ? putu(t, 90) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *p) {
    DEV();
    DONE(m < 0 ? putu(p, d->power) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *p) {
    DEV();
    DONE(m < 0 ? putu(p, d->plimit) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *p) {
    DEV();
    DONE(m < 0 ? putu(p, d->plimit) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *p) {
    DEV();
    DONE(m < 0 ? putu(p, d->fan) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t t, unsigned *p) {
    DEV();
    (void)t;
    DONE(m < 0 ? putu(p, 1410) : NOTSUP);
}
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t t, unsigned *p) {
    DEV();
    (void)t;
    DONE(m < 0 ? putu(p, 1410) : NOTSUP);
}
#define ENUM(fn, type, val)                                                                                            \
    API nvmlReturn_t fn(nvmlDevice_t device, type *o) {                                                                \
        DEV();                                                                                                         \
        unsigned v;                                                                                                    \
        int rc = putu(o ? &v : NULL, val);                                                                             \
        if (!rc) *o = (type)v;                                                                                         \
        DONE(rc);                                                                                                      \
    }
ENUM(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)
ENUM(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0)
ENUM(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, 1)
ENUM(nvmlDeviceGetDisplayMode, nvmlEnableState_t, 0)
ENUM(nvmlDeviceGetDisplayActive, nvmlEnableState_t, 0)
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t a, nvmlEccCounterType_t b,
                                             unsigned long long *n) {
    DEV();
    (void)a;
    (void)b;
    if (!n) DONE(INVAL);
    *n = 0;
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t k, unsigned *v) {
    DEV();
    (void)k;
    DONE(m < 0 ? putu(v, 0) : NOTSUP);
}

/* ---- processes ---- */
static int listed(const Process *p, const Device *d, int g, int m, char type) {
    return p->gpu == g && p->type == type && (m < 0 || (p->gi == d->gi && p->ci == d->ci));
}
static void put_process(void *out, unsigned k, const Process *p, int ver) {
    size_t size = ver == 3 ? (size_t)S->stride3 : 24;
    if (ver == 1) {
        ((nvmlProcessInfo_v1_t *)out)[k] = (nvmlProcessInfo_v1_t){p->pid, p->used};
        return;
    }
    char *e = (char *)out + k * size;
    memset(e, 0, size);
    *(nvmlProcessInfo_v2_t *)(void *)e = (nvmlProcessInfo_v2_t){p->pid, p->used, p->gi, p->ci};
}
static int procs(Device *d, int g, int m, char type, unsigned *n, void *out, int ver) {
    unsigned k = 0, have;
    if (!n) return INVAL;
    for (int i = 0; i < S->nproc; i++) k += listed(&S->proc[i], d, g, m, type);
    for (int i = 0; i < live.nproc; i++) k += listed(&live.proc[i], d, g, m, type);
    have = out ? *n : 0;
    *n = k;
    if (k > have) return TOOSMALL;
    k = 0;
    for (int i = 0; i < S->nproc && out; i++)
        if (listed(&S->proc[i], d, g, m, type)) put_process(out, k++, &S->proc[i], ver);
    for (int i = 0; i < live.nproc && out; i++)
        if (listed(&live.proc[i], d, g, m, type)) put_process(out, k++, &live.proc[i], ver);
    return OK;
}
#define PROCS(name, t)                                                                                                 \
    API nvmlReturn_t name(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_v1_t *o) {                                 \
        DEV();                                                                                                         \
        DONE(procs(d, g, m, t, n, o, 1));                                                                              \
    }                                                                                                                  \
    API nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_v2_t *o) {                            \
        DEV();                                                                                                         \
        DONE(procs(d, g, m, t, n, o, 2));                                                                              \
    }                                                                                                                  \
    API nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned *n, nvmlProcessInfo_t *o) {                               \
        DEV();                                                                                                         \
        DONE(procs(d, g, m, t, n, o, 3));                                                                              \
    }
PROCS(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCS(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCS(nvmlDeviceGetMPSComputeRunningProcesses, 'M')
static u64 now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
static int samples(Device *d, int g, int m, u64 since, unsigned *n, nvmlProcessUtilizationSample_t *o1,
                   nvmlProcessUtilizationInfo_v1_t *o2) {
    unsigned k = 0, have;
    u64 t = now_us();
    if (!n) return INVAL;
    if (m >= 0 || d->mig == 1) return NOTSUP;
    have = o1 || o2 ? *n : 0;
    for (int w = 0; w < 2; w++, k = w == 1 ? 0 : k) {
        for (int i = 0; i < S->nproc; i++) {
            Process *p = &S->proc[i];
            u64 ts = p->ts ? p->ts : t;
            if (p->gpu != g || ts <= since || !(p->sm | p->mem | p->enc | p->dec)) continue;
            if (w && o1) o1[k] = (nvmlProcessUtilizationSample_t){p->pid, ts, p->sm, p->mem, p->enc, p->dec};
            if (w && o2) o2[k] = (nvmlProcessUtilizationInfo_v1_t){ts, p->pid, p->sm, p->mem, p->enc, p->dec, 0, 0};
            k++;
        }
        if (!w) {
            *n = k;
            if (!k) return NOTFOUND;
            if (k > have) return TOOSMALL;
        }
    }
    return OK;
}
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *o, unsigned *n,
                                                 unsigned long long since) {
    DEV();
    DONE(samples(d, g, m, since, n, o, NULL));
}
API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *o) {
    DEV();
    if (!o) DONE(INVAL);
    DONE(samples(d, g, m, o->lastSeenTimeStamp, &o->processSamplesCount, NULL, o->procUtilArray));
}

/* ---- MIG ---- */
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *a, unsigned *b) {
    DEV();
    if (m >= 0) DONE(INVAL);
    int rc = putu(a, d->mig);
    DONE(rc ? rc : putu(b, d->mig));
}
API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *v) {
    DEV();
    DONE(putu(v, m >= 0));
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *v) {
    DEV();
    DONE(m >= 0 ? putu(v, d->gi) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *v) {
    DEV();
    DONE(m >= 0 ? putu(v, d->ci) : INVAL);
}
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *v) {
    DEV();
    DONE(m >= 0 ? INVAL : putu(v, d->maxmig));
}
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned i, nvmlDevice_t *out) {
    DEV();
    if (m >= 0) DONE(INVAL);
    if (d->mig != 1) DONE(NOTSUP);
    if (i >= MAXMIG || !S->mig[g][i].on) DONE(NOTFOUND);
    DONE(handle(out, g, i));
}
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
    DEV();
    DONE(m < 0 ? INVAL : handle(out, g, -1));
}
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *a) {
    DEV();
    if (!a) DONE(INVAL);
    if (m < 0) DONE(NOTSUP);
    memset(a, 0, sizeof *a);
    a->multiprocessorCount = d->sm;
    a->gpuInstanceSliceCount = a->computeInstanceSliceCount = d->slices;
    a->memorySizeMB = d->total >> 20;
    DONE(OK);
}

/* ---- events (Xid only) ---- */
API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) {
    SYS();
    if (!s) DONE(INVAL);
    *s = (nvmlEventSet_t)calloc(1, sizeof(u64));
    DONE(OK);
}
API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) {
    SYS();
    free((void *)s);
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *t) {
    DEV();
    if (!t) DONE(INVAL);
    *t = 8;
    DONE(OK);
}
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t s) {
    DEV();
    if (!s) DONE(INVAL);
    if (types & ~0x1FFFull) DONE(NOTSUP);
    *(u64 *)(void *)s |= 1ull << g;
    DONE(OK);
}
API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) {
    for (u64 end = now_us() + ms * 1000ull;;) {
        SYS();
        if (!s || !e) DONE(INVAL);
        if (S->nxid_sent < S->nxid && (*(u64 *)(void *)s >> S->xid_gpu[S->nxid_sent] & 1)) {
            int i = S->nxid_sent++;
            *e = (nvmlEventData_t){(nvmlDevice_t)&gh[S->xid_gpu[i]], 8, S->xid[i], NAU, NAU};
            DONE(OK);
        }
        leave(0);
        if (now_us() >= end) return R(TIMEOUT);
        usleep(5000);
    }
}

/* ---- exported by every driver, "not supported" here ---- */
#ifndef NVML_MOCK_ABI
#define STUB(fn)                                                                                                       \
    API nvmlReturn_t fn(void) {                                                                                        \
        SYS();                                                                                                         \
        DONE(NOTSUP);                                                                                                  \
    }
STUB(nvmlDeviceGetDriverModel)
STUB(nvmlDeviceGetDriverModel_v2)
STUB(nvmlDeviceGetFieldValues)
STUB(nvmlDeviceGetConfComputeMemSizeInfo)
STUB(nvmlDeviceGetArchitecture)
STUB(nvmlDeviceGetBrand)
STUB(nvmlDeviceGetEccMode)
STUB(nvmlDeviceGetTotalEnergyConsumption)
STUB(nvmlDeviceGetAddressingMode)
STUB(nvmlDeviceGetRunningProcessDetailList)
STUB(nvmlDeviceGetAccountingMode)
STUB(nvmlDeviceGetNumFans)
STUB(nvmlDeviceGetHandleByUUIDV)
STUB(nvmlDeviceGetHandleBySerial)
STUB(nvmlDeviceGetFanSpeed_v2)
STUB(nvmlDeviceGetVirtualizationMode)
#endif
