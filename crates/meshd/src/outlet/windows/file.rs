//! A Parquet file while it is written.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

use super::keep::Keeping;
use super::row::Row;
use crate::outlet::disk;

/// The columns. Of ToRs and round trips that are not known, nothing is said.
const SCHEMA: &str = "
    message window {
        required int64 window_start (timestamp(micros, true));
        required int64 window_end (timestamp(micros, true));
        required binary agent (string);
        required binary host (string);
        required binary source (string);
        required binary target (string);
        optional binary source_tor (string);
        optional binary target_tor (string);
        required int32 port (integer(16, false));
        required int32 reply_port (integer(16, false));
        required int32 ok (integer(32, false));
        required int32 slow (integer(32, false));
        required int32 ack2_lost (integer(32, false));
        required int32 ack1_lost (integer(32, false));
        required int32 time_out (integer(32, false));
        required int32 late (integer(32, false));
        required int32 invalid (integer(32, false));
        required int32 host_fault (integer(32, false));
        required int64 rtt_count (integer(64, false));
        required int64 rtt_sum_ns (integer(64, false));
        optional int64 rtt_p50_ns (integer(64, false));
        optional int64 rtt_p99_ns (integer(64, false));
    }
";

static TYPE: LazyLock<Result<TypePtr, ParquetError>> =
    LazyLock::new(|| parse_message_type(SCHEMA).map(TypePtr::new));

static PROPERTIES: LazyLock<WriterPropertiesPtr> = LazyLock::new(|| {
    let maker = format!("ferroce-mesh {}", env!("CARGO_PKG_VERSION"));
    Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by(maker).build())
});

/// A file that is being written beside its place.
pub(super) struct Open {
    writer: SerializedFileWriter<BufWriter<File>>,
    beside: PathBuf,
    /// Rows that it has.
    pub(super) rows: u64,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("beside", &self.beside).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Open {
    pub(super) fn begin(keeping: &Keeping) -> io::Result<Self> {
        let beside = keeping.beside();
        let schema = TYPE.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let file = BufWriter::new(File::create(&beside)?);
        let writer = SerializedFileWriter::new(file, Arc::clone(schema), Arc::clone(&PROPERTIES));
        Ok(Self { writer: writer.map_err(|error| told(error, &beside))?, beside, rows: 0 })
    }

    /// Adds rows. After an error the file is gone.
    pub(super) fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        self.rows += rows.len() as u64;
        let written = self.writer.next_row_group().and_then(|mut group| {
            columns(&mut group, rows)?;
            group.close().map(drop)
        });
        written.map_err(|error| told(error, &self.beside))
    }

    /// Puts the file into its place.
    pub(super) fn finish(mut self, keeping: &mut Keeping, millis: u64) -> io::Result<()> {
        let finished = self.writer.finish().and_then(|_| Ok(io::Write::flush(self.writer.inner_mut())?));
        finished.map_err(|error| told(error, &self.beside))?;
        let file = self.writer.inner().get_ref();
        let place = keeping.place(millis);
        let done = file.metadata().and_then(|about| {
            disk::finish(file, &self.beside, &place.1)?;
            Ok(about.len())
        });
        let bytes = done.inspect_err(|_| drop(fs::remove_file(&self.beside)))?;
        keeping.add(place.0, bytes);
        Ok(())
    }
}

/// Removes what was begun, and says what the system said.
fn told(error: ParquetError, beside: &std::path::Path) -> io::Error {
    let _ = fs::remove_file(beside);
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

fn columns(group: &mut Group<'_>, rows: &[Row]) -> Result<(), ParquetError> {
    let whole = |get: fn(&Row) -> u64| rows.iter().map(get).map(u64::cast_signed).collect::<Vec<_>>();
    let small = |get: fn(&Row) -> u32| rows.iter().map(get).map(u32::cast_signed).collect::<Vec<_>>();
    let maybe = |get: fn(&Row) -> Option<u64>| rows.iter().map(move |row| get(row).map(u64::cast_signed));
    let tor = |get: fn(&Row) -> &Option<Arc<str>>| rows.iter().map(move |row| get(row).as_deref().map(bytes));
    put::<Int64Type>(group, &whole(|row| row.start / 1000), None)?;
    put::<Int64Type>(group, &whole(|row| row.end / 1000), None)?;
    put::<ByteArrayType>(group, &rows.iter().map(|row| bytes(&row.agent)).collect::<Vec<_>>(), None)?;
    put::<ByteArrayType>(group, &rows.iter().map(|row| bytes(&row.host)).collect::<Vec<_>>(), None)?;
    put::<ByteArrayType>(group, &rows.iter().map(|row| address(row.from)).collect::<Vec<_>>(), None)?;
    put::<ByteArrayType>(group, &rows.iter().map(|row| address(row.to)).collect::<Vec<_>>(), None)?;
    put_known::<ByteArrayType>(group, tor(|row| &row.from_tor))?;
    put_known::<ByteArrayType>(group, tor(|row| &row.to_tor))?;
    put::<Int32Type>(group, &small(|row| row.port.into()), None)?;
    put::<Int32Type>(group, &small(|row| row.reply_port.into()), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.ok), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.slow), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.ack2_lost), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.ack1_lost), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.time_out), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.late), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.invalid), None)?;
    put::<Int32Type>(group, &small(|row| row.outcomes.host), None)?;
    put::<Int64Type>(group, &whole(|row| row.trips), None)?;
    put::<Int64Type>(group, &whole(|row| row.sum), None)?;
    put_known::<Int64Type>(group, maybe(|row| row.p50))?;
    put_known::<Int64Type>(group, maybe(|row| row.p99))
}

fn bytes(text: &str) -> ByteArray {
    text.into()
}

fn address(address: IpAddr) -> ByteArray {
    address.to_string().into_bytes().into()
}

/// The next column, of which only some values are known.
fn put_known<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let (mut known, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        known.extend(value);
    }
    put::<T>(group, &known, Some(&levels))
}

/// The next column.
fn put<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("there are more columns".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
