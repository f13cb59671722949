//! The functions of MPI by their addresses.
//!
//! The ABIs agree on the functions' names and differ in what a handle is: a C `int` with MPICH, a pointer with
//! Open MPI and the standard ABI. A table of addresses is therefore generic in the form of its handles
//! ([`Form`]), and the rest of the crate sees it as [`Api`] with one [`Handle`] for all.
#![expect(unsafe_code, reason = "foreign functions are called here")]

use std::ffi::CStr;

use libc::{c_char, c_int, c_void};

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("a short handle is stored in the low half of a long one: 64-bit little-endian machines only");

/// A handle of any ABI. A short one lies in the low half, so that a pointer to a `Handle` serves both forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) usize);

/// Room for the status of any ABI; the largest has 32 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Status(pub(crate) [c_int; 16]);

impl Status {
    pub(crate) const EMPTY: Self = Self([0; 16]);
}

/// What a handle is in one ABI.
pub(crate) trait Form: Copy + Send + Sync + 'static {
    fn of(handle: Handle) -> Self;
}

impl Form for c_int {
    fn of(handle: Handle) -> Self {
        (handle.0 as u32).cast_signed()
    }
}

impl Form for Address {
    fn of(handle: Handle) -> Self {
        Self(handle.0 as *mut c_void)
    }
}

/// A handle that is a pointer; nothing here looks behind it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Address(*mut c_void);

// SAFETY: MPI's handles may be used by any thread; the pointer is never followed here.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// An argument as it is passed to a function whose handles have the form `H`.
trait Argument<H> {
    type Raw;
    fn raw(self) -> Self::Raw;
}

impl<H: Form> Argument<H> for Handle {
    type Raw = H;
    fn raw(self) -> H {
        H::of(self)
    }
}

impl<H: Form> Argument<H> for *mut Handle {
    type Raw = *mut H;
    fn raw(self) -> *mut H {
        self.cast()
    }
}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        impl<H> Argument<H> for $ty {
            type Raw = $ty;
            fn raw(self) -> $ty {
                self
            }
        }
    )*};
}
plain! { c_int *const c_void *mut c_void *const c_int *mut c_int *mut c_char *mut Status }

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ident: $ty:ty),*);)*) => {
        struct Table<H: Form> {
            $($name: unsafe extern "C" fn($(<$ty as Argument<H>>::Raw),*) -> c_int,)*
        }

        /// The functions of one opened library. Each returns MPI's error code.
        ///
        /// # Safety
        /// As for the MPI function of the same name: handles belong to this library, pointers are good for as
        /// long as MPI keeps them.
        #[expect(clippy::too_many_arguments, reason = "as many as MPI's functions have")]
        pub(crate) trait Api: Send + Sync {
            $(unsafe fn $name(&self $(, $argument: $ty)*) -> c_int;)*
        }

        impl<H: Form> Api for Table<H> {
            $(unsafe fn $name(&self $(, $argument: $ty)*) -> c_int {
                // SAFETY: the caller keeps the rules of the MPI function; the table's types are of its ABI.
                unsafe { (self.$name)($(<$ty as Argument<H>>::raw($argument)),*) }
            })*
        }

        impl<H: Form> Table<H> {
            fn load(find: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = find($symbol).ok_or_else(|| missing($symbol))?;
                        // SAFETY: the symbol is the MPI function of this name, whose C type in an ABI with
                        // handles of the form `H` is the field's type.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($(<$ty as Argument<H>>::Raw),*) -> c_int,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    initialized = c"MPI_Initialized" (flag: *mut c_int);
    finalized = c"MPI_Finalized" (flag: *mut c_int);
    init_thread = c"MPI_Init_thread" (count: *mut c_int, arguments: *mut c_void, wanted: c_int, granted: *mut c_int);
    query_thread = c"MPI_Query_thread" (granted: *mut c_int);
    finalize = c"MPI_Finalize" ();
    abort = c"MPI_Abort" (communicator: Handle, code: c_int);
    error_string = c"MPI_Error_string" (code: c_int, text: *mut c_char, length: *mut c_int);
    error_class = c"MPI_Error_class" (code: c_int, class: *mut c_int);

    comm_rank = c"MPI_Comm_rank" (communicator: Handle, rank: *mut c_int);
    comm_size = c"MPI_Comm_size" (communicator: Handle, size: *mut c_int);
    comm_dup = c"MPI_Comm_dup" (communicator: Handle, new: *mut Handle);
    comm_split = c"MPI_Comm_split" (communicator: Handle, colour: c_int, key: c_int, new: *mut Handle);
    comm_split_type = c"MPI_Comm_split_type" (communicator: Handle, kind: c_int, key: c_int, info: Handle, new: *mut Handle);
    comm_group = c"MPI_Comm_group" (communicator: Handle, group: *mut Handle);
    comm_create_group = c"MPI_Comm_create_group" (communicator: Handle, group: Handle, tag: c_int, new: *mut Handle);
    group_incl = c"MPI_Group_incl" (group: Handle, count: c_int, ranks: *const c_int, new: *mut Handle);
    group_free = c"MPI_Group_free" (group: *mut Handle);
    comm_free = c"MPI_Comm_free" (communicator: *mut Handle);
    comm_set_errhandler = c"MPI_Comm_set_errhandler" (communicator: Handle, handler: Handle);
    comm_get_attr = c"MPI_Comm_get_attr" (communicator: Handle, key: c_int, value: *mut c_void, flag: *mut c_int);

    send = c"MPI_Send" (data: *const c_void, count: c_int, kind: Handle, to: c_int, tag: c_int, communicator: Handle);
    isend = c"MPI_Isend" (data: *const c_void, count: c_int, kind: Handle, to: c_int, tag: c_int, communicator: Handle, request: *mut Handle);
    irecv = c"MPI_Irecv" (data: *mut c_void, count: c_int, kind: Handle, from: c_int, tag: c_int, communicator: Handle, request: *mut Handle);
    iprobe = c"MPI_Iprobe" (from: c_int, tag: c_int, communicator: Handle, flag: *mut c_int, status: *mut Status);
    test = c"MPI_Test" (request: *mut Handle, flag: *mut c_int, status: *mut Status);
    cancel = c"MPI_Cancel" (request: *mut Handle);
    request_free = c"MPI_Request_free" (request: *mut Handle);
    test_cancelled = c"MPI_Test_cancelled" (status: *mut Status, flag: *mut c_int);
    get_count = c"MPI_Get_count" (status: *mut Status, kind: Handle, count: *mut c_int);

    barrier = c"MPI_Barrier" (communicator: Handle);
    ibarrier = c"MPI_Ibarrier" (communicator: Handle, request: *mut Handle);
    bcast = c"MPI_Bcast" (data: *mut c_void, count: c_int, kind: Handle, root: c_int, communicator: Handle);
    ibcast = c"MPI_Ibcast" (data: *mut c_void, count: c_int, kind: Handle, root: c_int, communicator: Handle, request: *mut Handle);
    allreduce = c"MPI_Allreduce" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, communicator: Handle);
    iallreduce = c"MPI_Iallreduce" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, communicator: Handle, request: *mut Handle);
    reduce = c"MPI_Reduce" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, root: c_int, communicator: Handle);
    ireduce = c"MPI_Ireduce" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, root: c_int, communicator: Handle, request: *mut Handle);
    reduce_local = c"MPI_Reduce_local" (left: *const c_void, right: *mut c_void, count: c_int, kind: Handle, op: Handle);
    reduce_scatter_block = c"MPI_Reduce_scatter_block" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, communicator: Handle);
    ireduce_scatter_block = c"MPI_Ireduce_scatter_block" (input: *const c_void, output: *mut c_void, count: c_int, kind: Handle, op: Handle, communicator: Handle, request: *mut Handle);
    reduce_scatter = c"MPI_Reduce_scatter" (input: *const c_void, output: *mut c_void, counts: *const c_int, kind: Handle, op: Handle, communicator: Handle);
    ireduce_scatter = c"MPI_Ireduce_scatter" (input: *const c_void, output: *mut c_void, counts: *const c_int, kind: Handle, op: Handle, communicator: Handle, request: *mut Handle);
    allgather = c"MPI_Allgather" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, communicator: Handle);
    iallgather = c"MPI_Iallgather" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, communicator: Handle, request: *mut Handle);
    allgatherv = c"MPI_Allgatherv" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, counts: *const c_int, offsets: *const c_int, received_kind: Handle, communicator: Handle);
    iallgatherv = c"MPI_Iallgatherv" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, counts: *const c_int, offsets: *const c_int, received_kind: Handle, communicator: Handle, request: *mut Handle);
    alltoall = c"MPI_Alltoall" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, communicator: Handle);
    ialltoall = c"MPI_Ialltoall" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, communicator: Handle, request: *mut Handle);
    alltoallv = c"MPI_Alltoallv" (input: *const c_void, sent: *const c_int, sent_offsets: *const c_int, sent_kind: Handle, output: *mut c_void, received: *const c_int, received_offsets: *const c_int, received_kind: Handle, communicator: Handle);
    ialltoallv = c"MPI_Ialltoallv" (input: *const c_void, sent: *const c_int, sent_offsets: *const c_int, sent_kind: Handle, output: *mut c_void, received: *const c_int, received_offsets: *const c_int, received_kind: Handle, communicator: Handle, request: *mut Handle);
    gather = c"MPI_Gather" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle);
    igather = c"MPI_Igather" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle, request: *mut Handle);
    gatherv = c"MPI_Gatherv" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, counts: *const c_int, offsets: *const c_int, received_kind: Handle, root: c_int, communicator: Handle);
    igatherv = c"MPI_Igatherv" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, counts: *const c_int, offsets: *const c_int, received_kind: Handle, root: c_int, communicator: Handle, request: *mut Handle);
    scatter = c"MPI_Scatter" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle);
    iscatter = c"MPI_Iscatter" (input: *const c_void, sent: c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle, request: *mut Handle);
    scatterv = c"MPI_Scatterv" (input: *const c_void, counts: *const c_int, offsets: *const c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle);
    iscatterv = c"MPI_Iscatterv" (input: *const c_void, counts: *const c_int, offsets: *const c_int, sent_kind: Handle, output: *mut c_void, received: c_int, received_kind: Handle, root: c_int, communicator: Handle, request: *mut Handle);
}

fn missing(symbol: &CStr) -> String {
    format!("it has no function {} (MPI 3 is the least that serves)", symbol.to_string_lossy())
}

/// How the handles of a library look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handles {
    Short,
    Pointer,
}

/// The functions of a library whose handles look like `handles`; `find` looks a symbol up in it.
pub(crate) fn load(handles: Handles, find: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Result<Box<dyn Api>, String> {
    Ok(match handles {
        Handles::Short => Box::new(Table::<c_int>::load(find)?),
        Handles::Pointer => Box::new(Table::<Address>::load(find)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_handle_keeps_its_bits_through_a_long_one() {
        let mut handle = Handle(0);
        let short: *mut c_int = (&raw mut handle).cast();
        let value = 0x9800_0001_u32.cast_signed();
        // SAFETY: the low half of a `Handle` is a good place for a C int.
        unsafe { short.write(value) };
        assert_eq!(handle, Handle(0x9800_0001));
        assert_eq!(<c_int as Form>::of(handle), value);
    }
}
