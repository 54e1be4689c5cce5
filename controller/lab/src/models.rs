//! The table of models that jobs may train, built in or read from a file.

use command_io::{CommandError, files};
use placement::ModelTable;

/// The built-in models, extended or replaced by those of a file.
pub(crate) fn read_models(name: Option<&str>) -> Result<ModelTable, CommandError> {
    let models = ModelTable::built_in();
    match name {
        Some(file) => {
            models.with_table(&files::read_text(file)?, file).map_err(CommandError::document)
        }
        None => Ok(models),
    }
}
