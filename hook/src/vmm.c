/*
 * The wrappers of virtual memory management. Physical memory exists until its last handle is released and its last mapping
 * removed, and the driver may reuse the handle's number before that. So the ledger has an OBJECT of its own that carries
 * the charge, and handles and mappings refer to it.
 */
#define _GNU_SOURCE
#include "reserve.h"

/*
 * Flags of an OBJECT: it counts a handle that is never released, since other processes or the driver's own objects may have it; it is
 * another process's memory, whose mappings are charged, since its size is not known.
 */
enum { EXPORTED = 1, IMPORTED = 2 };

/* Enters physical memory with one handle and returns its key; the ledger is locked. */
static uint64_t new_object(struct gsh_vgpu *v, uint64_t bytes) {
	static uint64_t objects; /* changed under the ledger's lock */
	gsh_item_put(&(struct gsh_item){OBJECT, ++objects, v, NULL, bytes, 1, 0, 0});
	return objects;
}

/* Enters a handle of an object; the ledger is locked. */
static void put_handle(uint64_t handle, uint64_t object) {
	gsh_item_put(&(struct gsh_item){HANDLE, handle, NULL, NULL, 0, object, 0, 0});
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

/* Releases the memory of a removed object or mapping. */
static void release_object(const struct gsh_item *removed) {
	if (removed->vgpu) gsh_memory_release(removed->vgpu, removed->bytes);
}

GSH_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop,
				unsigned long long flags) {
	NEED(cuMemCreate);
	if (!prop) return real(h, bytes, prop, flags);
	CUmemAllocationProp own = *prop; /* the driver gets what was looked at */
	if (gsh_location_is_host(own.location.type)) return real(h, bytes, &own, flags);
	struct gsh_reservation hold;
	if (!gsh_reserve_on(&hold, own.location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUmemGenericAllocationHandle created = 0;
	CUresult r = real(h ? &created : NULL, bytes, &own, flags);
	if (r != CUDA_SUCCESS) {
		gsh_memory_release(hold.on.vgpu, bytes);
		return r;
	}
	*h = created;
	gsh_ledger_lock();
	put_handle(created, new_object(hold.on.vgpu, bytes));
	gsh_ledger_unlock();
	return r;
}

/* A handle is in the ledger once however often it was retained; the object counts how often. */
GSH_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	NEED(cuMemRelease);
	struct gsh_item handle = {0}, object = {0}, removed = {0};
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	if (known) {
		handle = *known;
		object = *gsh_item_find(OBJECT, handle.other);
		if (--known->mappings == UINT64_MAX) gsh_item_remove(known); /* mappings of a HANDLE: how often it was retained */
		add_refs(handle.other, -1, 0, &removed);
	}
	gsh_ledger_unlock();
	CUresult r = real(h);
	if (r == CUDA_SUCCESS) {
		release_object(&removed);
	} else if (known) { /* put back what was removed */
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

/* Copies the object of a handle; false if the ledger has none. */
static bool object_of(CUmemGenericAllocationHandle h, struct gsh_item *copy) {
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	struct gsh_item *object = known ? gsh_item_find(OBJECT, known->other) : NULL;
	if (object) *copy = *object;
	gsh_ledger_unlock();
	return object != NULL;
}

GSH_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h,
			     unsigned long long flags) {
	NEED(cuMemMap);
	struct gsh_item object = {0};
	struct gsh_vgpu *charged = object_of(h, &object) && object.flags & IMPORTED ? object.vgpu : NULL;
	struct gsh_reservation hold;
	if (charged && !gsh_reserve_vgpu(&hold, charged, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(p, bytes, offset, h, flags);
	if (r != CUDA_SUCCESS && charged) gsh_memory_release(charged, bytes);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock(); /* also memory without an object, such as the host's, since one call may unmap it together with what is behind it */
	gsh_item_put(&(struct gsh_item){MAPPING, p, charged, NULL, bytes, object.key, 0, 0});
	add_refs(object.key, 0, 1, NULL);
	gsh_ledger_unlock();
	return r;
}

/* Removes the mapping that begins at p from the ledger. Returns where the next one may begin. */
static CUdeviceptr unmap_one(CUdeviceptr p, CUdeviceptr end) {
	struct gsh_item removed = {0}, mapping = {0};
	gsh_ledger_lock();
	struct gsh_item *m = gsh_item_find(MAPPING, p);
	if (m) {
		mapping = *m;
		gsh_item_remove(m);
		add_refs(mapping.other, 0, -1, &removed);
	}
	gsh_ledger_unlock();
	release_object(&mapping);
	release_object(&removed);
	return mapping.bytes ? p + mapping.bytes : end;
}

/* One call may remove several adjacent mappings. */
GSH_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
	NEED(cuMemUnmap);
	CUresult r = real(p, bytes);
	for (CUdeviceptr at = p; r == CUDA_SUCCESS && at < p + bytes;) at = unmap_one(at, p + bytes);
	return r;
}

/* Counts one more handle of an object; the ledger is locked. */
static void add_handle(uint64_t handle, uint64_t object) {
	struct gsh_item *known = gsh_item_find(HANDLE, handle);
	if (known && known->other == object)
		known->mappings++;
	else if (!known)
		put_handle(handle, object);
	add_refs(object, 1, 0, NULL);
}

/* Returns the object that is mapped at an address, or 0; the ledger is locked. */
static uint64_t object_at(uint64_t address) {
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == MAPPING && address >= i->key && address - i->key < i->bytes) return i->other;
	return 0;
}

GSH_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *address) {
	NEED(cuMemRetainAllocationHandle);
	CUresult r = real(h, address);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	uint64_t object = object_at((uint64_t)address);
	if (object) add_handle(*h, object);
	gsh_ledger_unlock();
	return r;
}

/* Counts one more handle of an object to the end of the process; the ledger is locked. */
static void keep_object(struct gsh_item *object) {
	if (!object || object->flags & EXPORTED) return;
	object->flags |= EXPORTED;
	object->other++;
}

/* Does the same for the object of a handle. */
static void keep_handle(CUmemGenericAllocationHandle h) {
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	if (known) keep_object(gsh_item_find(OBJECT, known->other));
	gsh_ledger_unlock();
}

/*
 * An exported handle keeps the memory, also after the last handle and mapping of this process are gone, and nothing says when
 * whoever has it closes it. So it counts as one more handle, to the end of the process.
 */
GSH_EXPORT CUresult cuMemExportToShareableHandle(void *os, CUmemGenericAllocationHandle h, int type, unsigned long long flags) {
	NEED(cuMemExportToShareableHandle);
	CUresult r = real(os, h, type, flags);
	if (r == CUDA_SUCCESS) keep_handle(h);
	return r;
}

/* Memory that is bound to a multicast object, or mapped into a sparse array, lives as long as these. */
GSH_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle h, size_t offset,
				       size_t bytes, unsigned long long flags) {
	NEED(cuMulticastBindMem);
	CUresult r = real(multicast, at, h, offset, bytes, flags);
	if (r == CUDA_SUCCESS) keep_handle(h);
	return r;
}

GSH_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr p, size_t bytes, unsigned long long flags) {
	NEED(cuMulticastBindAddr);
	CUresult r = real(multicast, at, p, bytes, flags);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	keep_object(gsh_item_find(OBJECT, object_at(p)));
	gsh_ledger_unlock();
	return r;
}

/* Another process's memory cannot be charged in an array, since its mappings there have no addresses. */
static bool maps_imported(const CUarrayMapInfo *list, unsigned n) {
	struct gsh_item object;
	for (unsigned i = 0; i < n; i++)
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP && object_of(list[i].memHandle, &object) && object.flags & IMPORTED) return true;
	return false;
}

#define MAP_ARRAY(name)                                                                                                 \
	GSH_EXPORT CUresult name(CUarrayMapInfo *list, unsigned n, CUstream s) {                                        \
		NEED(name);                                                                                             \
		if (list && maps_imported(list, n)) return CUDA_ERROR_NOT_SUPPORTED;                                    \
		CUresult r = real(list, n, s);                                                                          \
		for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++)                                                   \
			if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) keep_handle(list[i].memHandle);      \
		return r;                                                                                               \
	}
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

/* Returns the vGPU of imported memory. Sets refused where the memory is on a device of which the process has no share. */
static struct gsh_vgpu *vgpu_of(CUmemGenericAllocationHandle h, bool *refused) {
	CUmemAllocationProp prop = {0};
	*refused = false;
	if (CALL(cuMemGetAllocationPropertiesFromHandle, &prop, h) != CUDA_SUCCESS) return gsh_current().vgpu;
	if (gsh_location_is_host(prop.location.type)) return NULL;
	*refused = gsh_device_refused(prop.location.id);
	return gsh_vgpu_of_device(prop.location.id);
}

/*
 * Memory that is imported is charged where it is mapped, also if its owner is charged, who may end before. The import of a process's own
 * export may return the handle that it has already.
 */
GSH_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, int type) {
	NEED(cuMemImportFromShareableHandle);
	CUresult r = real(h, os, type);
	if (r != CUDA_SUCCESS) return r;
	bool refused;
	struct gsh_vgpu *v = vgpu_of(*h, &refused);
	if (refused) {
		CALL(cuMemRelease, *h);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, *h);
	if (known) {
		add_handle(*h, known->other);
	} else {
		uint64_t object = new_object(v, 0);
		put_handle(*h, object);
		gsh_item_find(OBJECT, object)->flags = IMPORTED;
	}
	gsh_ledger_unlock();
	return r;
}
