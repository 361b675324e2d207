/*
 * The wrappers of virtual memory management. Physical memory exists until its last handle is released and its last mapping
 * removed, and the driver may reuse the handle's number before that. So the ledger has an OBJECT of its own that carries
 * the charge, and handles and mappings refer to it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reserve.h"
#include "start.h"
#include "store.h"

/*
 * Flags of an OBJECT. IMPORTED: another process's memory, which is charged for its mappings, since its size is not known. STORED:
 * memory of the model store, whose mappings are free within the container's allowance. READ_ONLY: memory that may not be written.
 */
enum { IMPORTED = 1, STORED = 2, READ_ONLY = 4 };

/* Enters a handle of an object; the ledger is locked. Returns false if there is no room. */
static bool put_handle(uint64_t handle, uint64_t object) {
	return gsh_item_put(&(struct gsh_item){HANDLE, handle, NULL, NULL, 0, object, 0, 0});
}

/* Enters physical memory with one handle; the ledger is locked. Returns false if there is no room. */
static bool put_object(uint64_t handle, struct gsh_vgpu *v, uint64_t bytes, unsigned flags) {
	static uint64_t objects; /* changed under the ledger's lock */
	uint64_t object = ++objects;
	if (!gsh_item_put(&(struct gsh_item){OBJECT, object, v, NULL, bytes, 1, 0, flags})) return false;
	if (put_handle(handle, object)) return true;
	gsh_item_remove(gsh_item_find(OBJECT, object));
	return false;
}

/* Returns the object of a handle, or NULL; the ledger is locked. */
static struct gsh_item *object_of(CUmemGenericAllocationHandle h) {
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	return known ? gsh_item_find(OBJECT, known->other) : NULL;
}

/*
 * Changes an object's numbers of handles and mappings; the ledger is locked. When both are 0 the object is removed and
 * stored in `removed`, whose memory the caller releases after the driver's call.
 */
static void add_refs(uint64_t object, int handles, int mappings, struct gsh_item *removed) {
	struct gsh_item *o = gsh_item_find(OBJECT, object);
	if (!o) return;
	o->other += handles;
	o->mappings += mappings;
	if (o->other || o->mappings) return;
	if (removed) *removed = *o;
	gsh_item_remove(o);
}

/* Releases the memory of a removed object. */
static void release_object(const struct gsh_item *removed) {
	if (removed->vgpu) gsh_memory_release(removed->vgpu, removed->bytes);
}

/*
 * Enters what the driver has created, the host's memory too, since calls refuse a handle that the ledger lacks: it is about to be entered, or
 * about to be released. Stores the handle for the caller; releases it and returns an error if there is no room.
 */
static CUresult entered(CUmemGenericAllocationHandle created, struct gsh_vgpu *v, uint64_t bytes, CUmemGenericAllocationHandle *to) {
	gsh_ledger_lock();
	bool entered = put_object(created, v, bytes, 0);
	gsh_ledger_unlock();
	if (entered)
		*to = created;
	else
		CALL(cuMemRelease, created);
	return entered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

GSH_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop,
				unsigned long long flags) {
	NEED(cuMemCreate);
	if (!prop) return real(h, bytes, prop, flags);
	CUmemAllocationProp own = *prop; /* the driver gets what was checked */
	struct gsh_reservation hold = {0};
	CUresult r = gsh_location_is_host(own.location.type) ? CUDA_SUCCESS : gsh_reserve(&hold, BY_cuMemCreate, (uint64_t)own.location.id, bytes);
	if (r != CUDA_SUCCESS) return r;
	CUmemGenericAllocationHandle created = 0;
	r = real(h ? &created : NULL, bytes, &own, flags);
	if (r == CUDA_SUCCESS) r = entered(created, hold.on.vgpu, bytes, h);
	if (r != CUDA_SUCCESS && hold.counted) gsh_memory_release(hold.on.vgpu, bytes);
	return r;
}

/* What is bound to the object is charged as the memory that it is. */
GSH_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *h, const void *prop) {
	NEED(cuMulticastCreate);
	CUmemGenericAllocationHandle created = 0;
	CUresult r = real(h ? &created : NULL, prop);
	return r == CUDA_SUCCESS ? entered(created, NULL, 0, h) : r;
}

/* A handle is in the ledger once, however often it was retained; the object counts how often. */
GSH_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	NEED(cuMemRelease);
	struct gsh_item handle = {0}, object = {0}, removed = {0};
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h), *its = object_of(h);
	if (known && its) {
		handle = *known;
		object = *its;
		if (--known->mappings == UINT64_MAX) gsh_item_remove(known); /* mappings of a HANDLE: how often it was retained */
		add_refs(handle.other, -1, 0, &removed);
	}
	gsh_ledger_unlock();
	CUresult r = real(h);
	if (r == CUDA_SUCCESS) {
		release_object(&removed);
	} else if (handle.kind) { /* put back what was removed */
		gsh_ledger_lock();
		struct gsh_item *now = gsh_item_find(HANDLE, h);
		if (now) now->mappings++;
		if (!now) gsh_item_put(&handle);
		if (removed.kind) gsh_item_put(&object);
		if (!removed.kind) add_refs(handle.other, 1, 0, NULL);
		gsh_ledger_unlock();
	}
	return r;
}

/* Changes an object's numbers of handles and mappings, and releases its memory when both are 0. Takes the lock. */
static void count_refs(uint64_t object, int handles, int mappings) {
	struct gsh_item removed = {0};
	gsh_ledger_lock();
	add_refs(object, handles, mappings, &removed);
	gsh_ledger_unlock();
	release_object(&removed);
}

/* Copies the object of a handle, after adding mappings to it; all zeros if the ledger has none. Takes the lock. */
static struct gsh_item take_object(CUmemGenericAllocationHandle h, int mappings) {
	gsh_ledger_lock();
	struct gsh_item *object = object_of(h), copy = {0};
	if (object) {
		object->mappings += mappings;
		copy = *object;
	}
	gsh_ledger_unlock();
	return copy;
}

/* Reports whether an object is that of a handle which the ledger lacks. In a forked child it has none, and the driver returns its error. */
static bool is_unknown(const struct gsh_item *object) { return !object->kind && !gsh_driver_lost(); }

/*
 * Enters a mapping that the driver has made of an object; the object counts it already. Returns false if the handle no longer
 * refers to the object: another thread has released it, and the driver may have given its number to other memory.
 */
static bool enter_mapping(CUdeviceptr p, size_t bytes, uint64_t free, CUmemGenericAllocationHandle h, const struct gsh_item *object,
			  struct gsh_vgpu *charged) {
	gsh_ledger_lock();
	struct gsh_item *now = object_of(h);
	bool same = now && now->key == object->key;
	if (same) gsh_item_put(&(struct gsh_item){MAPPING, p, charged, NULL, bytes, object->key, free, 0});
	gsh_ledger_unlock();
	return same;
}

/* The mapping is counted before it is made: its memory stays charged if another thread releases the last handle meanwhile. */
GSH_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h,
			     unsigned long long flags) {
	NEED(cuMemMap);
	struct gsh_item object = take_object(h, 1);
	if (is_unknown(&object)) return CUDA_ERROR_INVALID_VALUE;
	struct gsh_vgpu *charged = object.flags & IMPORTED ? object.vgpu : NULL;
	struct gsh_reservation hold;
	uint64_t free = charged && object.flags & STORED ? gsh_import_take(charged, bytes) : 0;
	bool fits = !charged || gsh_reserve_vgpu(&hold, charged, bytes - free);
	CUresult r = fits ? real(p, bytes, offset, h, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && enter_mapping(p, bytes, free, h, &object, charged)) return r;
	if (r == CUDA_SUCCESS) {
		CALL(cuMemUnmap, p, bytes);
		r = CUDA_ERROR_INVALID_VALUE;
	}
	if (fits && charged) gsh_memory_release(charged, bytes - free);
	if (free) gsh_import_give(charged, free);
	count_refs(object.key, 0, -1);
	return r;
}

/* Removes the mapping that begins at p from the ledger. Returns where the next one may begin. */
static CUdeviceptr unmap_one(CUdeviceptr p, CUdeviceptr end) {
	struct gsh_item mapping = {0};
	if (!gsh_ledger_take(MAPPING, p, &mapping)) return end;
	if (mapping.vgpu) gsh_memory_release(mapping.vgpu, mapping.bytes - mapping.mappings);
	if (mapping.mappings) gsh_import_give(mapping.vgpu, mapping.mappings);
	count_refs(mapping.other, 0, -1);
	return mapping.bytes ? p + mapping.bytes : end;
}

/* One call may remove several adjacent mappings. */
GSH_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
	NEED(cuMemUnmap);
	CUresult r = real(p, bytes);
	for (CUdeviceptr at = p; r == CUDA_SUCCESS && at < p + bytes;) at = unmap_one(at, p + bytes);
	return r;
}

/* Reports whether a range has a mapping of memory that may not be written. Takes the lock. */
static bool is_read_only(CUdeviceptr p, size_t bytes) {
	bool found = false;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i && !found; i = gsh_item_next(i)) {
		if (i->kind != MAPPING || !(p >= i->key ? p - i->key < i->bytes : i->key - p < bytes)) continue;
		struct gsh_item *object = gsh_item_find(OBJECT, i->other);
		found = object && object->flags & READ_ONLY;
	}
	gsh_ledger_unlock();
	return found;
}

/*
 * Weights of the model store may be written only by the process that stores them, until it has committed them. The driver gets a
 * copy of what was checked.
 */
GSH_EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *list, size_t n) {
	NEED(cuMemSetAccess);
	if (!list || !n || n > SIZE_MAX / sizeof *list) return real(p, bytes, list, n);
	void *memory = mmap(NULL, n * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	CUmemAccessDesc *own = memcpy(memory, list, n * sizeof *list);
	bool writes = false;
	for (size_t i = 0; i < n; i++) writes = writes || own[i].flags & ~CU_MEM_ACCESS_FLAGS_PROT_READ;
	CUresult r = writes && is_read_only(p, bytes) ? CUDA_ERROR_NOT_PERMITTED : real(p, bytes, own, n);
	munmap(memory, n * sizeof *list);
	return r;
}

/* Enters a handle of an object, which counts it already; the ledger is locked. */
static void enter_handle(uint64_t handle, uint64_t object) {
	struct gsh_item *known = gsh_item_find(HANDLE, handle);
	if (known && known->other == object)
		known->mappings++;
	else if (!known)
		put_handle(handle, object);
}

/* Returns the object that is mapped at an address, or 0; the ledger is locked. */
static uint64_t object_at(uint64_t address) {
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == MAPPING && address >= i->key && address - i->key < i->bytes) return i->other;
	return 0;
}

/* Like a mapping, the handle is counted before it is made. */
GSH_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *address) {
	NEED(cuMemRetainAllocationHandle);
	gsh_ledger_lock();
	uint64_t object = object_at((uint64_t)address);
	add_refs(object, 1, 0, NULL);
	gsh_ledger_unlock();
	if (!object && !gsh_driver_lost()) return CUDA_ERROR_INVALID_VALUE; /* nothing is mapped, or the mapping is about to be entered */
	CUmemGenericAllocationHandle retained = 0;
	CUresult r = real(h ? &retained : NULL, address);
	gsh_ledger_lock();
	bool same = r == CUDA_SUCCESS && object_at((uint64_t)address) == object;
	if (same && object) enter_handle(retained, object);
	gsh_ledger_unlock();
	if (same) {
		*h = retained;
		return r;
	}
	if (r == CUDA_SUCCESS) CALL(cuMemRelease, retained);
	count_refs(object, -1, 0);
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

/*
 * Counts one more handle of a handle's object until the process ends: other processes or the driver's own objects may hold the
 * memory, and nothing tells when they let go. It is counted before the driver's call. Stores the object, for count_refs if the
 * call fails. Returns false if the handle is not known.
 */
static bool keep_handle(CUmemGenericAllocationHandle h, struct gsh_item *object) {
	gsh_ledger_lock();
	struct gsh_item *its = object_of(h);
	if (its) its->other++;
	*object = its ? *its : (struct gsh_item){0};
	gsh_ledger_unlock();
	return !is_unknown(object);
}

/* An exported handle keeps the memory alive, even after the last handle and mapping of this process are gone. */
GSH_EXPORT CUresult cuMemExportToShareableHandle(void *os, CUmemGenericAllocationHandle h, int type, unsigned long long flags) {
	NEED(cuMemExportToShareableHandle);
	struct gsh_item object;
	if (!keep_handle(h, &object)) return CUDA_ERROR_INVALID_VALUE;
	CUresult r = real(os, h, type, flags);
	if (r != CUDA_SUCCESS) count_refs(object.key, -1, 0);
	return r;
}

/* Memory that is bound to a multicast object, or mapped into a sparse array, lives as long as these. */
GSH_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle h, size_t offset,
				       size_t bytes, unsigned long long flags) {
	NEED(cuMulticastBindMem);
	struct gsh_item object;
	if (!keep_handle(h, &object)) return CUDA_ERROR_INVALID_VALUE;
	CUresult r = real(multicast, at, h, offset, bytes, flags);
	if (r != CUDA_SUCCESS) count_refs(object.key, -1, 0);
	return r;
}

/* The address range may cover several mappings. If the call fails, their memory stays charged until the process ends. */
GSH_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr p, size_t bytes, unsigned long long flags) {
	NEED(cuMulticastBindAddr);
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == MAPPING && (p >= i->key ? p - i->key < i->bytes : i->key - p < bytes)) add_refs(i->other, 1, 0, NULL);
	gsh_ledger_unlock();
	return real(multicast, at, p, bytes, flags);
}

/*
 * Keeps the memory that is mapped into arrays. Returns false for another process's memory, since its mappings in arrays have no
 * addresses to be charged at, and for a handle that is not known; what comes before it in the list stays charged.
 */
static bool keep_mapped(const CUarrayMapInfo *list, unsigned n) {
	struct gsh_item object;
	for (unsigned i = 0; i < n; i++)
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP && (!keep_handle(list[i].memHandle, &object) || object.flags & IMPORTED)) return false;
	return true;
}

/* Returns a copy of a list in memory of its own, NULL if there is none. The driver gets this copy, which was checked. */
static CUarrayMapInfo *copy_of(const CUarrayMapInfo *list, size_t bytes) {
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return own == MAP_FAILED ? NULL : memcpy(own, list, bytes);
}

#define MAP_ARRAY(name)                                                                                                 \
	GSH_EXPORT CUresult name(CUarrayMapInfo *list, unsigned n, CUstream s) {                                        \
		NEED(name);                                                                                             \
		if (!list || !n) return real(list, n, s);                                                               \
		CUarrayMapInfo *own = copy_of(list, n * sizeof *list);                                                  \
		if (!own) return CUDA_ERROR_OUT_OF_MEMORY;                                                              \
		CUresult r = keep_mapped(own, n) ? real(own, n, s) : CUDA_ERROR_NOT_SUPPORTED;                          \
		munmap(own, n * sizeof *list);                                                                          \
		return r;                                                                                               \
	}
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

/* Returns the vGPU of imported memory. Sets refused where the memory is on a device of which the process has no share. */
static struct gsh_vgpu *vgpu_of(CUmemGenericAllocationHandle h, bool *refused) {
	CUmemAllocationProp prop = {0};
	*refused = false;
	if (CALL(cuMemGetAllocationPropertiesFromHandle, &prop, h) != CUDA_SUCCESS) return gsh_target(BY_UNSAID, 0).vgpu;
	if (gsh_location_is_host(prop.location.type)) return NULL;
	*refused = gsh_device_refused(prop.location.id);
	return gsh_vgpu_of_device(prop.location.id);
}

/* Returns the flags of imported memory, by what its descriptor refers to. */
static unsigned flags_of(enum gsh_owned owned) {
	return IMPORTED | (owned == GSH_OWNED_NOT ? 0 : STORED) | (owned == GSH_OWNED_READ ? READ_ONLY : 0);
}

/*
 * Enters imported memory. The import of a process's own export may return the handle that the process has already; if the memory
 * may only be read from now on, that holds for all of its handles. Returns false if there is no room.
 */
static bool enter_import(CUmemGenericAllocationHandle imported, struct gsh_vgpu *v, unsigned flags) {
	gsh_ledger_lock();
	struct gsh_item *object = object_of(imported);
	if (object) {
		object->other++;
		if (object->flags & STORED) object->flags |= flags & READ_ONLY;
		enter_handle(imported, object->key);
	}
	bool entered = object || put_object(imported, v, 0, flags);
	gsh_ledger_unlock();
	return entered;
}

/*
 * Imported memory is charged where it is mapped. Its owner may be charged as well, but may end earlier. Memory of the model store
 * is not charged within the allowance. A descriptor is duplicated, so that the driver and the store get the same one.
 */
GSH_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, int type) {
	NEED(cuMemImportFromShareableHandle);
	gsh_start(); /* makes the allowance known */
	int fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? fcntl((int)(intptr_t)os, F_DUPFD_CLOEXEC, 3) : -1;
	CUmemGenericAllocationHandle imported = 0;
	CUresult r = real(h ? &imported : NULL, fd >= 0 ? (void *)(intptr_t)fd : os, type);
	if (r == CUDA_SUCCESS) {
		bool refused;
		struct gsh_vgpu *v = vgpu_of(imported, &refused);
		enum gsh_owned owned = fd >= 0 && !refused ? gsh_store_owned(v, fd) : GSH_OWNED_NOT;
		if (refused || !enter_import(imported, v, flags_of(owned))) {
			CALL(cuMemRelease, imported);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (fd >= 0) close(fd);
	if (r == CUDA_SUCCESS) *h = imported;
	return r;
}
