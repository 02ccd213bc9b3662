// SPDX-License-Identifier: Apache-2.0
//
// A global allocator in Rust that shows what Rust code allocates as the heap "rust" in heaptap's profiles, whichever
// allocator serves it.
//
//   global KEPT GIVEN_BACK
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::raw::{c_char, c_void};

#[link(name = "heaptap-sample", kind = "static")]
extern "C" {
    fn heaptap_heap_sample_alloc(heap: *const c_char, block: *const c_void, size: usize) -> bool;
    fn heaptap_heap_sample_free(heap: *const c_char, block: *const c_void);
}

struct Sampled;

const HEAP: *const c_char = b"rust\0".as_ptr() as *const c_char;

unsafe impl GlobalAlloc for Sampled {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = System.alloc(layout);
        heaptap_heap_sample_alloc(HEAP, block as *const c_void, layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        heaptap_heap_sample_free(HEAP, block as *const c_void);
        System.dealloc(block, layout)
    }
}

#[global_allocator]
static ALLOCATOR: Sampled = Sampled;

// A block that the compiler cannot leave out.
fn make<const SIZE: usize>() -> *mut [u8; SIZE] {
    let block = Box::into_raw(Box::new([1u8; SIZE]));
    unsafe { std::ptr::write_volatile(block as *mut u8, 2) };
    block
}

#[inline(never)]
#[no_mangle]
fn rust_keep(count: usize) {
    for _ in 0..count {
        make::<1000>();
    }
}

#[inline(never)]
#[no_mangle]
fn rust_churn(count: usize) {
    for _ in 0..count {
        drop(unsafe { Box::from_raw(make::<3000>()) });
    }
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().unwrap()).collect();
    rust_keep(numbers[0]);
    rust_churn(numbers[1]);
    println!("done");
}
