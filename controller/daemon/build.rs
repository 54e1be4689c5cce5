//! Compiles the part of etcd's API that is used with protox: no system protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .disable_comments(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
