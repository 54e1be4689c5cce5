//! Keeps the library loaded: NCCL closes its plugin with the last communicator, while the
//! plugin's thread still runs code of it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
