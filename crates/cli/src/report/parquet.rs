//! The rows of a report as Parquet: one row group, plain columns without compression. Moments are in UTC, to the
//! millisecond, as Parquet has them.

use super::sheet::{Column, Kind, Sheet};
use crate::failure::Failure;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::Type;
use serde_json::Value;
use std::sync::Arc;

impl Sheet<'_> {
    /// As Parquet.
    pub(super) fn parquet(&self) -> Result<Vec<u8>, Failure> {
        let schema = self.schema().map_err(Failure::fault)?;
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)
            .map_err(Failure::fault)?;
        let mut group = writer.next_row_group().map_err(Failure::fault)?;
        for column in &self.columns {
            self.put(column, &mut group).map_err(Failure::fault)?;
        }
        group.close().map_err(Failure::fault)?;
        writer.into_inner().map_err(Failure::fault)
    }

    fn schema(&self) -> parquet::errors::Result<Type> {
        let field = |column: &Column| {
            let (physical, logical) = match column.kind {
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Kind::Whole | Kind::MaybeWhole => (Physical::INT64, None),
                Kind::Part => (Physical::DOUBLE, None),
                Kind::Flag => (Physical::BOOLEAN, None),
                Kind::Moment | Kind::MaybeMoment => {
                    (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS)))
                }
            };
            let repetition =
                if is_optional(column.kind) { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            let field = Type::primitive_type_builder(column.name, physical)
                .with_repetition(repetition)
                .with_logical_type(logical);
            field.build().map(Arc::new)
        };
        let fields = self.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        Type::group_type_builder("report").with_fields(fields).build()
    }

    fn put(
        &self,
        column: &Column,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    ) -> parquet::errors::Result<()> {
        let Some(mut writer) = group.next_column()? else { return Ok(()) };
        let values = self.rows.iter().map(|row| column.of(row));
        match column.kind {
            Kind::Text => {
                let text = |value: &Value| value.as_str().map(ByteArray::from);
                write::<ByteArrayType>(&mut writer, values.map(text), column.kind)?;
            }
            Kind::Part => write::<DoubleType>(&mut writer, values.map(Value::as_f64), column.kind)?,
            Kind::Flag => write::<BoolType>(&mut writer, values.map(Value::as_bool), column.kind)?,
            Kind::Whole | Kind::MaybeWhole | Kind::Moment | Kind::MaybeMoment => {
                let whole =
                    |value: &Value| value.as_u64().map(|n| i64::try_from(n).unwrap_or(i64::MAX));
                write::<Int64Type>(&mut writer, values.map(whole), column.kind)?;
            }
        }
        writer.close()
    }
}

/// Words and some numbers may be missing.
const fn is_optional(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::MaybeWhole | Kind::MaybeMoment)
}

fn write<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
    kind: Kind,
) -> parquet::errors::Result<()>
where
    T::T: Default,
{
    if is_optional(kind) {
        let values: Vec<Option<T::T>> = values.collect();
        let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
        let there: Vec<T::T> = values.into_iter().flatten().collect();
        writer.typed::<T>().write_batch(&there, Some(&levels), None)?;
    } else {
        let values: Vec<T::T> = values.map(Option::unwrap_or_default).collect();
        writer.typed::<T>().write_batch(&values, None, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Rows;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    #[test]
    fn what_was_written_is_read_back() {
        let row = |workload: u64, ended: Value| {
            json!({
                "workload": workload, "attempt": 1, "name": "wörk", "budget": "a/b", "user": "max", "gpus": 2,
                "model": "x", "rate_milli": 1000, "hosts": "h-0:2", "allocated": true, "started_unix_ms": 5,
                "ended_unix_ms": ended, "from_unix_ms": 5, "to_unix_ms": 9, "used_gpu_ms": 9_007_199_254_740_993u64,
                "delivered_gpu_ms": 8, "lost_gpu_ms": 0, "outcome": null, "preempted_by_rule": null, "breach": null,
            })
        };
        let report =
            json!({"attempts": [row(7, json!(1_700_000_000_123u64)), row(8, Value::Null)]});
        let bytes = Sheet::of(&report, Rows::Attempts).parquet().expect("written");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("it is Parquet");
        let rows: Vec<_> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("one")).collect();
        assert_eq!(rows.len(), 2);
        let field = |row: usize, name: &str| {
            let found = rows[row].get_column_iter().find(|(other, _)| *other == name);
            found.expect("a column").1.clone()
        };
        assert_eq!(field(0, "used_gpu_ms"), Field::Long(9_007_199_254_740_993));
        assert_eq!(field(0, "ended"), Field::TimestampMillis(1_700_000_000_123));
        assert_eq!(field(1, "ended"), Field::Null);
        assert_eq!(field(1, "name"), Field::Str("wörk".into()));
        assert_eq!(field(1, "allocated"), Field::Bool(true));
        // Of nothing at all, too.
        let none = json!({"budgets": []});
        let bytes = Sheet::of(&none, Rows::Budgets).parquet().expect("written");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("it is Parquet");
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
