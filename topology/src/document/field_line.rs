//! On which line of a document a field is, for mistakes that are found after it was read.
//!
//! The decision: the document is read once more, by the same parser, and stopped at the field. What
//! the parser then says is wrong is of no interest, but it knows where it was.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{DocumentFormat, line_at};

/// The line, from 1, of a field, as errors spell it (`job[2].level`): of the nearest field around
/// it where it is not given. None where the text is no document.
pub fn line_of_field(text: &str, format: DocumentFormat, field: &str) -> Option<usize> {
    let steps: Vec<&str> = field.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect();
    let mut depths = (1..=steps.len()).rev();
    depths.find_map(|depth| locate_field(text, format, &steps[..depth]))
}

fn locate_field(text: &str, format: DocumentFormat, steps: &[&str]) -> Option<usize> {
    let seek = FieldLocator { steps };
    match format {
        DocumentFormat::Toml => {
            let found = seek.deserialize(toml::Deserializer::parse(text).ok()?);
            let span = found.err()?.span()?;
            Some(line_at(text, span.start))
        }
        DocumentFormat::Yaml => {
            let found = seek.deserialize(serde_yaml_ng::Deserializer::from_str(text));
            Some(found.err()?.location()?.line())
        }
        DocumentFormat::Json => {
            let found = seek.deserialize(&mut serde_json::Deserializer::from_str(text));
            Some(found.err()?.line())
        }
    }
}

/// Goes down these steps, and fails where they end.
#[derive(Clone, Copy)]
struct FieldLocator<'a> {
    steps: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for FieldLocator<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.steps.is_empty() {
            true => deserializer.deserialize_any(StopVisitor),
            false => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldLocator<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what has fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let rest = Self { steps: &self.steps[1..] };
        while let Some(key) = map.next_key::<String>()? {
            match key == self.steps[0] {
                true => map.next_value_seed(rest)?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let rest = Self { steps: &self.steps[1..] };
        let mut at = 0;
        loop {
            let more = match self.steps[0].parse() == Ok(at) {
                true => items.next_element_seed(rest)?.is_some(),
                false => items.next_element::<IgnoredAny>()?.is_some(),
            };
            at += 1;
            if !more {
                return Ok(());
            }
        }
    }

    // A scalar where the steps go on: the field is not there.
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Is content with nothing, so that the parser says where it is.
struct StopVisitor;

impl Visitor<'_> for StopVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_every_format() {
        let toml =
            "levels = 8\nfairness = 2\n\n[[job]]\nmatch = 'a'\n[[job]]\nmatch = 'b'\nlevel = 9\n";
        let yaml = "levels: 8\nfairness: 2\njob:\n- match: a\n- match: b\n  level: 9\n";
        let json = "{\n\"levels\": 8,\n\"fairness\": 2,\n\"job\": [\n{\"match\": \"a\"},\n\
                    {\"match\": \"b\",\n\"level\": 9}]}";
        let cases =
            [("fairness", [2, 2, 3]), ("job[1].level", [8, 6, 7]), ("job[1].match", [7, 5, 6])];
        for (field, lines) in cases {
            let texts = [
                (toml, DocumentFormat::Toml),
                (yaml, DocumentFormat::Yaml),
                (json, DocumentFormat::Json),
            ];
            let found = texts.map(|(text, format)| line_of_field(text, format, field));
            assert_eq!(found, lines.map(Some), "{field}");
        }
        // A missing field is where it would have been.
        assert_eq!(line_of_field(toml, DocumentFormat::Toml, "job[0].level"), Some(4));
        assert_eq!(line_of_field(toml, DocumentFormat::Toml, "nothing"), None);
    }
}
