//! The built plugin, opened with `dlopen` as NCCL opens it: by a C program with declarations of
//! its own, and by ranks that replay ring, tree and all-to-all.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

mod c_harness;
mod driver;
mod replay;

use std::path::PathBuf;

/// The library that these tests were built with.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let name = "libnccl_profiler_crux.so";
    let places = [folder.join(name), folder.parent().unwrap().join(name)];
    places.into_iter().find(|path| path.exists()).expect("the plugin was built beside its tests")
}
