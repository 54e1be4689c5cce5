//! Compiles the protobufs with protox: no system protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["telemetry.proto", "northbound.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Answers are made from those of HTTP by the names of their fields.
        .message_attribute(
            ".crux.northbound",
            "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]",
        )
        .compile_fds(descriptors)?;
    Ok(())
}
