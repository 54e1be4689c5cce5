//! `seeds FOLDER` writes what fuzzing starts from into FOLDER/packets, programs and requests.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("seeds FOLDER")?;
    switch_fuzz::seeds(folder.as_ref())
}
