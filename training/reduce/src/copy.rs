//! Copies, past the caches where that is quicker.
#![expect(
    unsafe_code,
    reason = "memory is given by address, and non-temporal stores are instructions of the processor's"
)]

use std::ptr;

/// Copies `bytes` bytes.
///
/// `streaming` writes past the caches: right for more than they hold when nobody reads the copy soon. The copy is
/// finished, and a later release store publishes it, when the function returns.
///
/// # Safety
///
/// `from` can be read and `to` written for `bytes` bytes, and they do not overlap.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize, streaming: bool) {
    if streaming {
        // SAFETY: as the caller promises.
        unsafe { stream(to, from, bytes) };
        fence();
    } else {
        // SAFETY: as the caller promises.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Copies past the caches. Other processors see it in order only after a [`fence`].
///
/// # Safety
///
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(clippy::cast_ptr_alignment, reason = "the pointer was moved to a line's beginning")]
#[inline]
pub(crate) unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: head, lines and tail are within the caller's ranges; `to + head` is aligned to a line, and so is every store.
    unsafe {
        ptr::copy_nonoverlapping(from, to, head);
        let (mut to_line, mut from_line) = (to.add(head), from.add(head));
        for _ in 0..lines {
            let [a, b, c, d] = [0, 16, 32, 48].map(|at| _mm_loadu_si128(from_line.add(at).cast::<__m128i>()));
            _mm_stream_si128(to_line.cast::<__m128i>(), a);
            _mm_stream_si128(to_line.add(16).cast::<__m128i>(), b);
            _mm_stream_si128(to_line.add(32).cast::<__m128i>(), c);
            _mm_stream_si128(to_line.add(48).cast::<__m128i>(), d);
            (to_line, from_line) = (to_line.add(LINE), from_line.add(LINE));
        }
        ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
    }
}

/// Copies; this architecture's own copy decides about its caches.
///
/// # Safety
///
/// As [`copy`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(crate) unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Makes streamed copies ordered before every later store.
#[inline]
pub(crate) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
