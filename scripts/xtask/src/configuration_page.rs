//! The page of the configuration, rendered from the JSON Schema of the controller's configuration.
//!
//! The schema comes from the types that read the file, so the page cannot name a field, a default
//! or a range that the program does not have.

use std::fmt::Write as _;

use serde_json::Value;

const INTRODUCTION: &str = "\
# Configuration of the controller

`crux controller --config FILE` reads TOML, YAML or JSON. Every field has a default, so a file sets
only what differs. `crux config check FILE` checks a file as the controller does, and lists what it
sets: an error names file, line and field, and the name that was probably meant. `crux config print`
prints a file with every field, its meaning and its default as comments; `crux init` writes one.
At start, `--log info` prints the effective configuration.
[schemas/configuration.schema.json](schemas/configuration.schema.json) is the JSON Schema for
editors (`crux schema configuration`).

```toml
[northbound]
listen = \"127.0.0.1:9300\"

[store]
path = \"/var/lib/crux/state.redb\"
```

This page is generated from the program: `cargo xtask generate`.
";

/// Units by the last word of a field's name.
const UNITS: [(&str, &str); 7] = [
    ("_ms", "ms"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("gbps", "Gb/s"),
    ("body_max", "bytes"),
    ("receive_max", "bytes"),
    ("headers_max", "bytes"),
];

/// The page for a schema.
///
/// # Errors
/// The text is no JSON Schema with `properties`.
pub(crate) fn render_page(schema: &str) -> Result<String, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let mut page = INTRODUCTION.to_owned();
    render_sections(&mut page, &schema, &schema, "")?;
    Ok(page)
}

/// Renders the tables of an object: first its own fields, then a section for each of its objects.
fn render_sections(
    page: &mut String,
    schema: &Value,
    object: &Value,
    path: &str,
) -> Result<(), String> {
    let properties = object["properties"].as_object().ok_or(format!("{path}: no properties"))?;
    let mut rows = String::new();
    let mut sections = Vec::new();
    for (name, property) in properties {
        let inner = format!("{path}{name}");
        match (section_of(schema, property), section_of(schema, &property["items"])) {
            (Some(section), _) => sections.push((format!("[{inner}]"), inner, property, section)),
            (_, Some(section)) => sections.push((format!("[[{inner}]]"), inner, property, section)),
            _ => render_row(&mut rows, schema, name, property),
        }
    }
    if !rows.is_empty() {
        page.push_str("\n| field | type | default | range | meaning |\n|---|---|---|---|---|\n");
        page.push_str(&rows);
    }
    for (title, inner, property, section) in sections {
        let text = description(property);
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## `{title}`\n\n{text}\n");
        render_sections(page, schema, section, &format!("{inner}."))?;
    }
    Ok(())
}

/// The object that a property refers to, if it refers to one.
fn section_of<'a>(schema: &'a Value, property: &Value) -> Option<&'a Value> {
    let definition = definition(schema, property)?;
    definition.get("properties").map(|_| definition)
}

fn definition<'a>(schema: &'a Value, property: &Value) -> Option<&'a Value> {
    let alternatives = property["anyOf"].as_array().into_iter().flatten();
    let reference =
        std::iter::once(property).chain(alternatives).find_map(|p| p["$ref"].as_str())?;
    schema.pointer(reference.strip_prefix('#')?)
}

fn render_row(rows: &mut String, schema: &Value, name: &str, property: &Value) {
    let unit = UNITS.iter().find(|(ending, _)| name.ends_with(ending));
    let unit = unit.map_or(String::new(), |(_, unit)| format!(", {unit}"));
    let default = match &property["default"] {
        Value::Null => "none".to_owned(),
        value => format!("`{value}`"),
    };
    let kind = kind(schema, property);
    let range = range(property);
    let text = description(property);
    let _ = writeln!(rows, "| `{name}` | {kind}{unit} | {default} | {range} | {text} |");
}

/// The type in words; for an enum, its values.
fn kind(schema: &Value, property: &Value) -> String {
    if let Some(values) = definition(schema, property).and_then(enum_values) {
        return values;
    }
    let names = match &property["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name.as_str()],
        _ => Vec::new(),
    };
    let name = names.into_iter().find(|name| *name != "null").unwrap_or("any");
    match name {
        "array" => format!("list of {}s", kind(schema, &property["items"])),
        name => name.to_owned(),
    }
}

fn enum_values(definition: &Value) -> Option<String> {
    let documented = definition["oneOf"].as_array().into_iter().flatten();
    let plain = definition["enum"].as_array().into_iter().flatten();
    let values = documented.filter_map(|one| one["const"].as_str());
    let values = values.chain(plain.filter_map(Value::as_str));
    let listed: Vec<String> = values.map(|value| format!("`\"{value}\"`")).collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}

fn range(property: &Value) -> String {
    let low = match ["minimum", "exclusiveMinimum"].map(|key| property[key].as_f64()) {
        [Some(least), _] => format!("{least}"),
        [_, Some(above)] => format!("above {above}"),
        _ => return String::new(),
    };
    match property["maximum"].as_f64() {
        Some(most) => format!("{low} to {most}"),
        None if low.starts_with("above") => low,
        None => format!("{low} or more"),
    }
}

fn description(property: &Value) -> String {
    property["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_fields_units_ranges_and_defaults_are_rendered() {
        let schema = r##"{
            "properties": {
                "store": {"$ref": "#/$defs/Store", "description": "What is stored."}
            },
            "$defs": {
                "Store": {"properties": {
                    "wait_ms": {"type": "integer", "default": 5, "minimum": 1,
                        "description": "A wait."},
                    "mode": {"$ref": "#/$defs/Mode", "default": "fast"}
                }},
                "Mode": {"oneOf": [{"const": "fast"}, {"const": "slow"}]}
            }
        }"##;
        let page = render_page(schema).unwrap();
        assert!(page.contains("## `[store]`\n\nWhat is stored.\n"), "{page}");
        assert!(page.contains("| `wait_ms` | integer, ms | `5` | 1 or more | A wait. |"), "{page}");
        assert!(page.contains("| `mode` | `\"fast\"`, `\"slow\"` | `\"fast\"` |  |  |"), "{page}");
    }
}
