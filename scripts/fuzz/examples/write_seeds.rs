//! `write_seeds FOLDER` writes inputs in binary forms into the folders of their targets.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("write_seeds FOLDER")?;
    fuzz_targets::seeds::write_seeds(folder.as_ref())
}
