//! The one place that speaks SQLite's VFS interface: a shim over the unix VFS.
//!
//! One shim is registered as the process's default, because the protocol opens its database by path and knows no
//! other. Whether a file is recorded is asked of the thread that opens it: [`record`] names the thread's recorder;
//! without one, or for a file that is not the recorder's, the unix VFS fills the file in and the shim never sees it
//! again. A recorded file remembers its recorder. So several sweeps run in one process, each on a thread of its own.
//!
//! What the shim changes for SQLite: methods of version 2, so no memory mapping of the database, and time and random
//! numbers that are the same in each run. Sector size and device characteristics are what unix reports
//! (`POWERSAFE_OVERWRITE`, `SUBPAGE_READ`): the first decides whether a WAL is padded to whole sectors, and we are to
//! record what SQLite does on a real disk, not on a more careful one. Locks and shared memory are the real ones.
//!
//! Unrecorded by design: the shared-memory file (never synced, any content is legal after a cut), temporary files
//! (they mean nothing after a cut), and what `SQLITE_FCNTL_CHUNK_SIZE` would preallocate (nobody here sets it).

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use rusqlite::ffi;

use super::log::{DirectorySync, Role};
use super::plan::Call;
use super::recorder::{Handle, Recorder};

/// Has SQLite keep no memory statistics: it counts every allocation under one lock, at which a sweep's threads mostly
/// meet. Without effect once SQLite is in use; harmless then.
pub fn keep_no_statistics() {
    // SAFETY: the verb takes one int. SQLite refuses it, without harm, once it is initialised; `main` calls this before
    // any other thread or connection is there.
    let _ = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) };
}

/// The shim in SQLite's list of VFSs, as the default; taken out of it when dropped.
pub struct Registration {
    vfs: *mut Shim,
}

/// Puts the shim in as the process's default VFS. More than one at a time do no harm: each wraps the unix VFS itself,
/// and all ask the same thread for its recorder.
pub fn register() -> Result<Registration, String> {
    // SAFETY: SQLite finds a VFS by a NUL-terminated name, initialises itself if need be, and answers with null or
    // with a VFS that lives as long as the process.
    let unix = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    if unix.is_null() {
        return Err("SQLite has no VFS named unix: the recording disk runs on unix only".into());
    }
    let name = CString::from(c"recording");
    // SAFETY: `unix` is not null (above) and SQLite never changes a registered VFS but for its list pointer.
    let unix_vfs = unsafe { *unix };
    let vfs = Box::into_raw(Box::new(Shim {
        vfs: ffi::sqlite3_vfs {
            // Version 2 ends before the system-call overrides, which are the unix VFS's own affair. What is not
            // listed below is the unix VFS's function as it is; each ignores the VFS it is called with, and the
            // copied fields are true for it anyway.
            iVersion: 2,
            szOsFile: size_of::<Recorded>() as c_int + unix_vfs.szOsFile,
            pNext: ptr::null_mut(),
            zName: name.as_ptr(),
            xOpen: Some(x_open),
            xDelete: Some(x_delete),
            xRandomness: Some(x_randomness),
            xSleep: Some(x_sleep),
            xCurrentTime: Some(x_current_time),
            xCurrentTimeInt64: Some(x_current_time_int64),
            ..unix_vfs
        },
        unix,
        _name: name,
    }));
    // SAFETY: `vfs` points to a whole `sqlite3_vfs` (first field, `repr(C)`) that is never freed.
    match unsafe { ffi::sqlite3_vfs_register(vfs.cast(), 1) } {
        ffi::SQLITE_OK => Ok(Registration { vfs }),
        code => Err(format!("SQLite refused the recording VFS with code {code}")),
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered in `register`. The shim itself is left to leak, some hundred bytes: a connection still
        // open keeps a pointer to it.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs.cast()) };
    }
}

thread_local! {
    static RECORDER: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

/// This thread records until this is dropped. Connections must be closed before: a WAL deleted later is not seen.
#[must_use = "the recording ends where this is dropped"]
pub struct Recording {
    before: Option<Arc<Recorder>>,
    /// Belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Makes this the recorder of what this thread opens and deletes.
///
/// SQLite's random numbers are the process's, not the thread's. They start anew here, so a run is the same byte for
/// byte as long as no other thread uses SQLite meanwhile; if one does, the salts and checksums in the WAL differ, and
/// nothing else: not the calls, their order, places or lengths.
pub fn record(recorder: &Arc<Recorder>) -> Recording {
    let before = RECORDER.replace(Some(Arc::clone(recorder)));
    forget_randomness();
    Recording { before, _thread: PhantomData }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.replace(self.before.take());
        forget_randomness();
    }
}

fn forget_randomness() {
    // SAFETY: zero bytes into no buffer is SQLite's documented way to have the generator seeded anew at its next use.
    unsafe { ffi::sqlite3_randomness(0, ptr::null_mut()) };
}

fn recorder() -> Option<Arc<Recorder>> {
    RECORDER.try_with(|recorder| recorder.borrow().clone()).ok()?
}

#[repr(C)]
struct Shim {
    vfs: ffi::sqlite3_vfs,
    unix: *mut ffi::sqlite3_vfs,
    _name: CString,
}

/// What SQLite allocates for a recorded file; the unix VFS's own file object follows directly behind.
#[repr(C)]
struct Recorded {
    file: ffi::sqlite3_file,
    /// From `Box::into_raw` in `x_open`, taken back in `x_close`.
    state: *mut State,
}

struct State {
    recorder: Arc<Recorder>,
    handle: Handle,
    /// Shared-memory regions that the unix VFS mapped for this file, with their sizes in bytes.
    regions: RefCell<Vec<(*const u8, usize)>>,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// A panic must not unwind into C: it becomes an I/O error.
fn contained<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(on_panic)
}

/// # Safety
/// `file` was filled in by `x_open` as a recorded file and not yet closed.
unsafe fn state<'file>(file: *mut ffi::sqlite3_file) -> &'file State {
    // SAFETY: by the contract above `file` is a `Recorded` whose state is a live box. SQLite uses one file from one
    // thread at a time and closes it last, so the borrow ends before the box does.
    unsafe { &*(*file.cast::<Recorded>()).state }
}

fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // Never read here, and within the allocation: `szOsFile` asked for room for both.
    file.cast::<Recorded>().wrapping_add(1).cast()
}

/// Calls one method of the real file behind a recorded one.
macro_rules! real {
    ($file:ident . $method:ident ( $($argument:expr),* ) else $missing:expr) => {{
        let real = real($file);
        // SAFETY: the unix VFS opened `real` in `x_open` and set its methods, which stay until it is closed; the
        // arguments are SQLite's own, handed on (or a part of its buffer, with that part's length).
        unsafe {
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => $missing,
            }
        }
    }};
}

unsafe extern "C" fn x_open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls this with the VFS that carries it, which is the first field of a `Shim` that is never freed.
    let unix = unsafe { (*vfs.cast::<Shim>()).unix };
    let open_real = |file| {
        // SAFETY: `unix` lives as long as the process; `file` has room for its file object; the rest is SQLite's own.
        unsafe {
            match (*unix).xOpen {
                Some(open) => open(unix, name, file, flags, out_flags),
                None => ffi::SQLITE_CANTOPEN,
            }
        }
    };
    let ours = contained(None, || {
        let recorder = recorder()?;
        // SAFETY: `name` is null for a temporary file, else NUL-terminated and valid during the call.
        let role = recorder.role_of(unsafe { path(name) }?)?;
        Some((recorder, role))
    });
    let Some((recorder, role)) = ours else {
        return open_real(file);
    };
    // SAFETY: SQLite allocated `szOsFile` bytes at `file`, aligned for a pointer. Null methods tell it, should we
    // fail, that there is nothing to close.
    unsafe { (*file).pMethods = ptr::null() };
    let opened = contained(Err(ffi::SQLITE_CANTOPEN), || {
        recorder.open(role, flags, || {
            let code = open_real(real(file));
            // SAFETY: the unix VFS has just written its file object there, or at least its methods.
            let methods = unsafe { (*real(file)).pMethods };
            if code != ffi::SQLITE_OK && !methods.is_null() {
                real!(file.xClose() else ffi::SQLITE_OK);
            }
            code
        })
    });
    match opened {
        Ok(handle) => {
            let state = Box::into_raw(Box::new(State { recorder, handle, regions: RefCell::default() }));
            // SAFETY: as above, `file` has room for a `Recorded`.
            unsafe {
                (*file.cast::<Recorded>()).state = state;
                (*file).pMethods = &METHODS;
            }
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

/// # Safety
/// `name` is null or NUL-terminated, and outlives the borrow.
unsafe fn path<'name>(name: *const c_char) -> Option<&'name Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the contract above.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

unsafe extern "C" fn x_delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: as in `x_open`.
    let unix = unsafe { (*vfs.cast::<Shim>()).unix };
    let delete_real = |sync_directory| {
        // SAFETY: `unix` lives as long as the process; `name` is SQLite's own.
        unsafe {
            match (*unix).xDelete {
                Some(delete) => delete(unix, name, sync_directory),
                None => ffi::SQLITE_IOERR_DELETE,
            }
        }
    };
    contained(ffi::SQLITE_IOERR_DELETE, || {
        let recorder = recorder();
        // SAFETY: `name` is a NUL-terminated path, valid during the call.
        let role = recorder.as_ref().zip(unsafe { path(name) });
        let role = role.and_then(|(recorder, path)| recorder.role_of(path));
        let (Some(recorder), Some(role)) = (recorder, role) else {
            return delete_real(sync_directory);
        };
        let directory = match sync_directory & 1 {
            0 => DirectorySync::NotSynced,
            _ => DirectorySync::Synced,
        };
        recorder.delete(role, directory, |directory| {
            delete_real(match directory {
                DirectorySync::NotSynced => 0,
                DirectorySync::Synced => 1,
            })
        })
    })
}

unsafe extern "C" fn x_randomness(vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    if let Some(recorder) = contained(None, recorder) {
        // SAFETY: SQLite gives `len` writable bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len.max(0) as usize) };
        contained((), || recorder.fill_random(bytes));
        return len;
    }
    // SAFETY: as in `x_open`; the arguments are SQLite's own.
    unsafe {
        let unix = (*vfs.cast::<Shim>()).unix;
        (*unix).xRandomness.map_or(0, |randomness| randomness(unix, len, out))
    }
}

unsafe extern "C" fn x_sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    let skipped = contained(false, || recorder().is_some_and(|recorder| recorder.sleeps_are_skipped()));
    if skipped {
        return microseconds;
    }
    // SAFETY: as in `x_open`.
    unsafe {
        let unix = (*vfs.cast::<Shim>()).unix;
        (*unix).xSleep.map_or(0, |sleep| sleep(unix, microseconds))
    }
}

/// 2000-01-01 12:00 UTC as a Julian day in milliseconds: the time while a thread records.
const RECORDED_TIME: i64 = 2_451_545 * 86_400_000;

unsafe extern "C" fn x_current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    let mut milliseconds = 0;
    // SAFETY: SQLite's own VFS, handed on, and a place of ours for the answer.
    let code = unsafe { x_current_time_int64(vfs, &mut milliseconds) };
    // SAFETY: SQLite gives a place for one double.
    unsafe { *out = milliseconds as f64 / 86_400_000.0 };
    code
}

unsafe extern "C" fn x_current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    if contained(None, recorder).is_some() {
        // SAFETY: SQLite gives a place for one 64-bit number.
        unsafe { *out = RECORDED_TIME };
        return ffi::SQLITE_OK;
    }
    // SAFETY: as in `x_open`; `out` is SQLite's own.
    unsafe {
        let unix = (*vfs.cast::<Shim>()).unix;
        (*unix).xCurrentTimeInt64.map_or(ffi::SQLITE_ERROR, |time| time(unix, out))
    }
}

unsafe extern "C" fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    let code = real!(file.xClose() else ffi::SQLITE_OK);
    // SAFETY: the box made in `x_open`; SQLite closes a file once and does not touch it afterwards.
    let state = unsafe { Box::from_raw((*file.cast::<Recorded>()).state) };
    contained((), || state.recorder.close());
    code
}

unsafe extern "C" fn x_read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: a recorded file, open, and `amount` bytes to fill.
    let (state, buffer) =
        unsafe { (state(file), std::slice::from_raw_parts_mut(buffer.cast::<u8>(), amount.max(0) as usize)) };
    contained(ffi::SQLITE_IOERR_READ, || {
        state.recorder.read(state.handle, buffer, |buffer| {
            real!(file.xRead(buffer.as_mut_ptr().cast(), buffer.len() as c_int, offset)
                else ffi::SQLITE_IOERR_READ)
        })
    })
}

unsafe extern "C" fn x_write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: a recorded file, open, and `amount` bytes to read.
    let (state, data) = unsafe { (state(file), std::slice::from_raw_parts(data.cast::<u8>(), amount.max(0) as usize)) };
    contained(ffi::SQLITE_IOERR_WRITE, || {
        state.recorder.write(state.handle, offset as u64, data, |part| {
            real!(file.xWrite(part.as_ptr().cast(), part.len() as c_int, offset)
                    else ffi::SQLITE_IOERR_WRITE)
        })
    })
}

unsafe extern "C" fn x_truncate(file: *mut ffi::sqlite3_file, len: ffi::sqlite3_int64) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained(ffi::SQLITE_IOERR_TRUNCATE, || {
        state.recorder.truncate(state.handle, len as u64, || real!(file.xTruncate(len) else ffi::SQLITE_IOERR_TRUNCATE))
    })
}

unsafe extern "C" fn x_sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained(ffi::SQLITE_IOERR_FSYNC, || {
        state.recorder.sync(state.handle, flags, || real!(file.xSync(flags) else ffi::SQLITE_IOERR_FSYNC))
    })
}

unsafe extern "C" fn x_file_size(file: *mut ffi::sqlite3_file, size: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained(ffi::SQLITE_IOERR_FSTAT, || {
        state.recorder.pass(
            Call::FileSize,
            state.handle.role(),
            || real!(file.xFileSize(size) else ffi::SQLITE_IOERR_FSTAT),
        )
    })
}

unsafe extern "C" fn x_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained(ffi::SQLITE_IOERR_LOCK, || {
        state.recorder.pass(Call::Lock, state.handle.role(), || real!(file.xLock(level) else ffi::SQLITE_IOERR_LOCK))
    })
}

unsafe extern "C" fn x_unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    real!(file.xUnlock(level) else ffi::SQLITE_IOERR_UNLOCK)
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    real!(file.xCheckReservedLock(out) else ffi::SQLITE_IOERR_CHECKRESERVEDLOCK)
}

unsafe extern "C" fn x_file_control(file: *mut ffi::sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained((), || match operation {
        ffi::SQLITE_FCNTL_COMMIT_PHASETWO => state.recorder.transaction_ended(),
        ffi::SQLITE_FCNTL_CKPT_START => state.recorder.checkpoint_started(),
        _ => {}
    });
    real!(file.xFileControl(operation, argument) else ffi::SQLITE_NOTFOUND)
}

unsafe extern "C" fn x_sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    real!(file.xSectorSize() else 0)
}

unsafe extern "C" fn x_device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    real!(file.xDeviceCharacteristics() else 0)
}

unsafe extern "C" fn x_shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    // SAFETY: SQLite gives a place for one pointer, and expects null there on an error.
    unsafe { *out = ptr::null_mut() };
    contained(ffi::SQLITE_IOERR_SHMMAP, || {
        state.recorder.pass(Call::SharedMemoryMap, Role::Database, || {
            let code = real!(file.xShmMap(region, size, extend, out)
                    else ffi::SQLITE_IOERR_SHMMAP);
            // SAFETY: the unix VFS has set it to null or to a mapping of `size` bytes.
            let mapped = unsafe { *out }.cast_const().cast::<u8>();
            let mut regions = state.regions.borrow_mut();
            if !mapped.is_null() && regions.len() == region as usize {
                regions.push((mapped, size as usize));
            }
            code
        })
    })
}

unsafe extern "C" fn x_shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    let lock = || real!(file.xShmLock(offset, n, flags) else ffi::SQLITE_IOERR_SHMLOCK);
    if flags & ffi::SQLITE_SHM_LOCK != 0 {
        return contained(ffi::SQLITE_IOERR_SHMLOCK, || {
            state.recorder.pass(Call::SharedMemoryLock, Role::Database, lock)
        });
    }
    // Slot 0 exclusive is the WAL's write lock: its holder alone changes the index, and is done with it now.
    if offset == 0 && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 {
        contained((), || {
            let regions = state.regions.borrow();
            state.recorder.shared_memory(regions.iter().flat_map(copy_of_region).collect());
        });
    }
    lock()
}

/// Word by word and volatile: other processes map the same memory.
fn copy_of_region(&(region, size): &(*const u8, usize)) -> Vec<u8> {
    let words = region.cast::<u64>();
    (0..size / size_of::<u64>())
        // SAFETY: `x_shm_map` noted a mapping of `size` bytes, page-aligned, that the unix VFS keeps until
        // `x_shm_unmap`, where the note is dropped first.
        .flat_map(|word| unsafe { words.add(word).read_volatile() }.to_ne_bytes())
        .collect()
}

unsafe extern "C" fn x_shm_barrier(file: *mut ffi::sqlite3_file) {
    real!(file.xShmBarrier() else ())
}

unsafe extern "C" fn x_shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: a recorded file, open.
    let state = unsafe { state(file) };
    contained((), || state.regions.borrow_mut().clear());
    real!(file.xShmUnmap(delete) else ffi::SQLITE_OK)
}
