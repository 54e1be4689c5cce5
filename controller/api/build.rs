//! Compiles the protobufs with protox: no system protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(["telemetry.proto", "northbound.proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Answers are made from those of HTTP by the names of their fields.
        .message_attribute(
            ".crux.northbound",
            "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]",
        )
        .enum_attribute(
            ".crux.northbound",
            "#[derive(serde::Serialize, serde::Deserialize)] #[serde(rename_all = \"snake_case\")]",
        )
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
