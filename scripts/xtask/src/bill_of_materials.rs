//! `cargo xtask sbom`: the bill of materials of a release, CycloneDX 1.5 as JSON.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::libraries::{Library, read_libraries};

/// Prints the bill of materials.
pub(crate) fn print_bill(root: &Path) -> ExitCode {
    match read_libraries(root) {
        Ok(libraries) => {
            println!("{:#}", bill_of_materials(&libraries));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bill_of_materials(libraries: &[Library]) -> Value {
    let components: Vec<Value> = libraries.iter().map(component).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "crux",
                "version": env!("CARGO_PKG_VERSION"),
                "licenses": [{"expression": "Apache-2.0"}]
            }
        },
        "components": components
    })
}

fn component(library: &Library) -> Value {
    let Library { name, version, license, checksum, .. } = library;
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        // The form of SPDX; some manifests still separate with a slash.
        "licenses": [{"expression": license.replace(" / ", "/").replace('/', " OR ")}]
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_a_component_with_its_package_url() {
        let library = Library {
            name: "serde".to_owned(),
            version: "1.0.0".to_owned(),
            source: "registry".to_owned(),
            license: "MIT/Apache-2.0".to_owned(),
            checksum: Some("ab".to_owned()),
        };
        let bill = bill_of_materials(&[library]);
        let component = &bill["components"][0];
        assert_eq!(component["purl"], "pkg:cargo/serde@1.0.0");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(component["hashes"][0]["content"], "ab");
    }
}
