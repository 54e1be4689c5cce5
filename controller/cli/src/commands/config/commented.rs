//! A configuration in TOML that explains itself: every field with its meaning, its range and its
//! default, from the JSON Schema of the types that read it.
//!
//! The decision: a field at its default is a comment (`#batch = 500`), so an operator sees what is
//! set, and a later version may have better defaults. Headers of sections are no comments where a
//! section may be empty; otherwise a field that an operator uncomments would be another section's.

use ::controller::RawConfig;
use command_io::CommandError;
use schemars::schema_for;
use serde_json::Value;

/// Columns of the text.
const WIDTH: usize = 90;

const INTRODUCTION: &str = "\
# Configuration of a Crux controller. A field that begins with # has its default.
# Check it with: crux config check FILE
";

/// The text of a configuration in which the fields of `given` are set.
///
/// # Errors
/// A value of `given` cannot be written in TOML.
pub(crate) fn commented_configuration(given: &Value) -> Result<String, CommandError> {
    let schema = serde_json::to_value(schema_for!(RawConfig)).map_err(CommandError::failed)?;
    let mut writer = CommentWriter { schema: &schema, text: INTRODUCTION.to_owned() };
    writer.write_fields("", &schema, given, LineStyle::Set)?;
    Ok(writer.text)
}

/// Whether the lines of a section are in force.
#[derive(Clone, Copy, PartialEq)]
enum LineStyle {
    Set,
    /// A section that must not be there without its fields.
    Comment,
}

impl LineStyle {
    fn mark(self) -> &'static str {
        match self {
            Self::Set => "",
            Self::Comment => "#",
        }
    }
}

struct CommentWriter<'a> {
    schema: &'a Value,
    text: String,
}

impl<'a> CommentWriter<'a> {
    /// Writes the fields of an object, then its sections: in TOML they have to come last.
    fn write_fields(
        &mut self,
        path: &str,
        object: &'a Value,
        given: &Value,
        style: LineStyle,
    ) -> Result<(), CommandError> {
        let Some(properties) = object["properties"].as_object() else {
            return Ok(());
        };
        let is_section = |property: &&Value| self.section_of(property).is_some();
        let (sections, fields): (Vec<_>, Vec<_>) =
            properties.iter().partition(|(_, property)| is_section(property));
        for (name, property) in fields {
            self.write_field(name, property, &given[name.as_str()], style)?;
        }
        for (name, property) in sections {
            let separator = if path.is_empty() { "" } else { "." };
            let inner = format!("{path}{separator}{name}");
            self.write_section(&inner, property, &given[name.as_str()])?;
        }
        Ok(())
    }

    fn write_section(
        &mut self,
        path: &str,
        property: &'a Value,
        given: &Value,
    ) -> Result<(), CommandError> {
        let Some((section, is_list)) = self.section_of(property) else {
            return Ok(());
        };
        let header = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
        let needs_fields = is_list || section["required"].is_array();
        self.text.push('\n');
        self.write_comment(property["description"].as_str().unwrap_or_default());
        let (objects, style) = match given {
            Value::Array(objects) if is_list => (objects.as_slice(), LineStyle::Set),
            Value::Null if needs_fields => (std::slice::from_ref(given), LineStyle::Comment),
            _ => (std::slice::from_ref(given), LineStyle::Set),
        };
        for object in objects {
            self.text.push_str(&format!("{}{header}\n", style.mark()));
            self.write_fields(path, section, object, style)?;
        }
        Ok(())
    }

    fn write_field(
        &mut self,
        name: &str,
        property: &Value,
        given: &Value,
        style: LineStyle,
    ) -> Result<(), CommandError> {
        let range = range_text(property).map(|range| format!(" ({range})")).unwrap_or_default();
        let meaning = property["description"].as_str().unwrap_or_default();
        self.write_comment(&format!("{meaning}{range}"));
        let (mark, value) = match given {
            Value::Null => ("#", self.default_value(property)),
            given => (style.mark(), given.clone()),
        };
        let value = toml::Value::try_from(value).map_err(CommandError::failed)?;
        self.text.push_str(&format!("{mark}{name} = {value}\n"));
        Ok(())
    }

    /// The default of a field; where it has none, an empty value of its type.
    fn default_value(&self, property: &Value) -> Value {
        let is_list = property["type"].as_str() == Some("array");
        match &property["default"] {
            Value::Null if is_list => Value::Array(Vec::new()),
            Value::Null => self.first_choice(property).unwrap_or_else(|| Value::from("")),
            default => default.clone(),
        }
    }

    fn first_choice(&self, property: &Value) -> Option<Value> {
        let choices = &self.definition(property)?["oneOf"];
        Some(choices.get(0)?["const"].clone())
    }

    /// The object that a property is or lists, and whether it lists it.
    fn section_of(&self, property: &Value) -> Option<(&'a Value, bool)> {
        let find = |property: &Value| {
            self.definition(property).filter(|definition| definition["properties"].is_object())
        };
        let single = find(property).map(|section| (section, false));
        single.or_else(|| Some((find(&property["items"])?, true)))
    }

    fn definition(&self, property: &Value) -> Option<&'a Value> {
        let alternatives = property["anyOf"].as_array().into_iter().flatten();
        let mut named = std::iter::once(property).chain(alternatives);
        let reference = named.find_map(|property| property["$ref"].as_str())?;
        self.schema.pointer(reference.strip_prefix('#')?)
    }

    /// Writes a text as comments of at most [`WIDTH`] columns.
    fn write_comment(&mut self, text: &str) {
        let mut line = "#".to_owned();
        for word in text.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                self.text.push_str(&line);
                self.text.push('\n');
                line.truncate(1);
            }
            line.push(' ');
            line.push_str(word);
        }
        if line.len() > 1 {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }
}

fn range_text(property: &Value) -> Option<String> {
    let least = property["minimum"].as_f64()?;
    Some(match property["maximum"].as_f64() {
        Some(most) => format!("{least} to {most}"),
        None => format!("{least} or more"),
    })
}

#[cfg(test)]
mod tests {
    use ::controller::Config;
    use serde_json::json;
    use topology::document::DocumentFormat;

    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse_text(text, DocumentFormat::Toml, "crux.toml").unwrap()
    }

    /// The text with its fields in force, apart from sections that are comments and from fields
    /// without a default.
    fn uncommented(text: &str) -> String {
        let mut is_skipped = false;
        let mut kept = String::new();
        for line in text.lines() {
            let is_header = line.starts_with('[') || line.starts_with("#[");
            is_skipped = if is_header { line.starts_with('#') } else { is_skipped };
            let is_empty = line.starts_with("# ") || line.ends_with("= \"\"");
            if !is_skipped && !is_empty {
                kept.push_str(line.strip_prefix('#').unwrap_or(line));
                kept.push('\n');
            }
        }
        kept
    }

    #[test]
    fn it_is_the_default_and_stays_it_with_its_fields_in_force() {
        let text = commented_configuration(&Value::Null).unwrap();
        assert_eq!(parse(&text), Config::default());
        let set = uncommented(&text);
        assert!(set.contains("\nbatch = 500\n"), "{set}");
        assert_eq!(parse(&set), Config::default(), "{set}");
    }

    #[test]
    fn every_field_of_the_schema_is_in_it_with_its_meaning() {
        let text = commented_configuration(&Value::Null).unwrap();
        let schema = serde_json::to_value(schema_for!(RawConfig)).unwrap();
        let objects = schema["$defs"].as_object().unwrap().values().chain([&schema]);
        let objects = objects.filter_map(|object| object["properties"].as_object());
        let mut fields = 0;
        for (name, property) in objects.flatten() {
            let field = text.find(&format!("\n#{name} = "));
            let section = text.find(&format!("{name}]"));
            assert!(field.or(section).is_some(), "{name} is missing");
            let meaning = property["description"].as_str().unwrap_or_default();
            let start: Vec<&str> = meaning.split_whitespace().take(3).collect();
            assert!(text.contains(&format!("# {}", start.join(" "))), "{name}: {meaning}");
            fields += 1;
        }
        assert!(fields > 100, "{fields}");
    }

    #[test]
    fn given_fields_are_set_and_the_rest_is_a_comment() {
        let given = json!({
            "northbound": {
                "listen": "127.0.0.1:9300",
                "tokens": [{ "name": "ada", "role": "read", "sha256": "ab".repeat(32) }],
            },
        });
        let text = commented_configuration(&given).unwrap();
        assert!(text.contains("\nlisten = \"127.0.0.1:9300\"\n"), "{text}");
        assert!(text.contains("\n[[northbound.tokens]]\n"), "{text}");
        assert!(text.contains("\n#[[northbound.certificates]]\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(parse(&text).northbound.tokens.len(), 1);
    }
}
