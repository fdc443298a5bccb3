use rusqlite::types::Value;

use crate::error::Result;
use crate::store::Store;

/// One setting of a connection, as SQLite reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the pragma.
    pub pragma: &'static str,
    /// Its value; whole numbers in decimal.
    pub value: String,
}

/// Those that durability rests on (PROTOCOL, *init / open*), then what shapes the file.
const PRAGMAS: [&str; 11] = [
    "journal_mode",
    "synchronous",
    "foreign_keys",
    "busy_timeout",
    "fullfsync",
    "checkpoint_fullfsync",
    "trusted_schema",
    "wal_autocheckpoint",
    "journal_size_limit",
    "page_size",
    "encoding",
];

impl<O> Store<O> {
    /// What this connection runs with, read back from it now. Opening has demanded the first of them already.
    ///
    /// # Errors
    /// What SQLite reports.
    pub fn settings(&self) -> Result<Vec<Setting>> {
        PRAGMAS.into_iter().map(|pragma| Ok(Setting { pragma, value: self.read_back(pragma)? })).collect()
    }

    fn read_back(&self, pragma: &str) -> Result<String> {
        let value = self.connection.pragma_query_value(None, pragma, |row| row.get(0))?;
        Ok(match value {
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => text,
            Value::Null | Value::Real(_) | Value::Blob(_) => format!("{value:?}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Allowance, Limits};

    #[test]
    fn settings_are_those_of_the_connection_at_this_moment() {
        let folder = tempfile::tempdir().unwrap();
        let allowance = Allowance { count: 1, bytes: 1 };
        let limits = Limits { global: allowance, tenant: allowance, payload_bytes: 1 };
        let store = Store::open(folder.path().join("store.db"), &limits).unwrap();
        let told = || {
            let settings = store.settings().unwrap();
            settings.iter().map(|setting| format!("{}={}", setting.pragma, setting.value)).collect::<Vec<_>>().join(" ")
        };
        let wanted = "journal_mode=wal synchronous=2 foreign_keys=1 busy_timeout=5000 fullfsync=1 checkpoint_fullfsync=1 \
                      trusted_schema=0 wal_autocheckpoint=1000 journal_size_limit=8388608 page_size=4096 encoding=UTF-8";
        assert_eq!(told(), wanted);
        store.connection.pragma_update(None, "synchronous", "OFF").unwrap();
        assert_eq!(told(), wanted.replace("synchronous=2", "synchronous=0"));
    }
}
