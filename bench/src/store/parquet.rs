//! Parquet: a file for two hours of a session, a column a series, behind a journal of what is not in a file yet.
//!
//! That is what suits Parquet best: one column of times for all series, each series with a dictionary of its own, or its bytes apart where that grows
//! too large, all of it through Zstandard.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::{Compression, Encoding, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::sides::{FLUSH, Fold, Side, Taking, charts};
use super::workload::{Span, Workload};

/// Ticks of a file.
const SEGMENT: usize = 1440;
/// Bytes of a dictionary: more different values are better without.
const DICTIONARY: usize = 4096;
/// Values between two looks at how large a dictionary is.
const BATCH: usize = 128;
/// How often a chart is drawn.
const CHARTS: usize = 9;
const AT: &str = "at";

/// Measures it.
pub(super) fn measure(path: &Path, workload: &Workload) -> anyhow::Result<Side> {
    std::fs::create_dir(path)?;
    let mut segments = Segments::new(path, workload)?;
    let mut journal = File::create(path.join("journal"))?;
    let taking = Taking::begin()?;
    let mut records = Vec::new();
    for (tick, (at, row)) in workload.ticks().enumerate() {
        // Its series' numbers are the values' places, which is less than a journal has to say.
        records.extend_from_slice(&at.to_le_bytes());
        records.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        segments.open.add(at, row);
        if tick % FLUSH == FLUSH - 1 {
            journal.write_all(&records)?;
            journal.sync_data()?;
            records.clear();
        }
        if segments.open.times.len() == SEGMENT {
            segments.close()?;
            journal.set_len(0)?;
            journal.rewind()?;
        }
    }
    if !segments.open.times.is_empty() {
        segments.close()?;
    }
    let (samples_per_core_s, samples_per_s) = taking.end(workload.len())?;
    let mut bytes = 0;
    for file in &segments.files {
        bytes += std::fs::metadata(file)?.len();
    }
    let charts = charts(workload, CHARTS, |span| {
        let mut fold = Fold::new(workload.names.len(), span);
        for file in &segments.files {
            read(file, span, &mut fold)?;
        }
        Ok(fold.lines())
    })?;
    let bytes_per_sample = bytes as f64 / workload.len() as f64;
    Ok(Side { samples_per_core_s, samples_per_s, bytes_per_sample, charts })
}

/// What is in no file yet.
#[derive(Default)]
struct Open {
    times: Vec<i64>,
    columns: Vec<Vec<f64>>,
}

impl Open {
    fn add(&mut self, at: i64, row: &[f64]) {
        self.times.push(at);
        self.columns.resize(row.len(), Vec::new());
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(*value);
        }
    }
}

struct Segments {
    directory: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    open: Open,
    files: Vec<PathBuf>,
}

impl Segments {
    fn new(directory: &Path, workload: &Workload) -> anyhow::Result<Self> {
        let column = |name: &str, kind, repetition| {
            anyhow::Ok(Arc::new(Type::primitive_type_builder(name, kind).with_repetition(repetition).build()?))
        };
        let mut fields = vec![column(AT, Physical::INT64, Repetition::REQUIRED)?];
        for name in &workload.names {
            // Not every series has a value at every time.
            fields.push(column(name, Physical::DOUBLE, Repetition::OPTIONAL)?);
        }
        let schema = Type::group_type_builder("samples").with_fields(fields).build()?;
        let at = ColumnPath::from(AT);
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_write_batch_size(BATCH)
            .set_dictionary_page_size_limit(DICTIONARY)
            .set_encoding(Encoding::BYTE_STREAM_SPLIT)
            .set_column_dictionary_enabled(at.clone(), false)
            .set_column_encoding(at, Encoding::DELTA_BINARY_PACKED);
        Ok(Self {
            directory: directory.to_owned(),
            schema: Arc::new(schema),
            properties: Arc::new(properties.build()),
            open: Open::default(),
            files: Vec::new(),
        })
    }

    /// Writes a file of what is open; it is on the disk then.
    fn close(&mut self) -> anyhow::Result<()> {
        let Open { times, columns } = std::mem::take(&mut self.open);
        let path = self.directory.join(format!("{}.parquet", self.files.len()));
        let mut writer =
            SerializedFileWriter::new(File::create(&path)?, Arc::clone(&self.schema), Arc::clone(&self.properties))?;
        let mut group = writer.next_row_group()?;
        let mut column = group.next_column()?.context("a column for times")?;
        column.typed::<Int64Type>().write_batch(&times, None, None)?;
        column.close()?;
        let there = vec![1; times.len()];
        for values in &columns {
            let mut column = group.next_column()?.context("a column for each series")?;
            column.typed::<DoubleType>().write_batch(values, Some(&there), None)?;
            column.close()?;
        }
        group.close()?;
        writer.into_inner()?.sync_all()?;
        self.files.push(path);
        Ok(())
    }
}

/// Folds what a file has of this time.
fn read(path: &Path, span: Span, fold: &mut Fold) -> anyhow::Result<()> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        let ends = match group.metadata().column(0).statistics() {
            Some(Statistics::Int64(times)) => times.min_opt().zip(times.max_opt()),
            _ => None,
        };
        if ends.is_some_and(|(first, last)| *last < span.from_ms || *first >= span.to_ms) {
            continue;
        }
        let rows = usize::try_from(group.metadata().num_rows())?;
        let mut times = Vec::with_capacity(rows);
        get_typed_column_reader::<Int64Type>(group.get_column_reader(0)?).read_records(rows, None, None, &mut times)?;
        let skipped = times.partition_point(|at| *at < span.from_ms);
        let wanted = times.partition_point(|at| *at < span.to_ms).saturating_sub(skipped);
        for series in 0..group.num_columns() - 1 {
            let mut column = get_typed_column_reader::<DoubleType>(group.get_column_reader(series + 1)?);
            column.skip_records(skipped)?;
            let (mut there, mut values) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
            column.read_records(wanted, Some(&mut there), None, &mut values)?;
            let mut values = values.into_iter();
            for (at, there) in times.iter().skip(skipped).zip(there) {
                if let Some(value) = (there == 1).then(|| values.next()).flatten() {
                    fold.add(series, *at, value);
                }
            }
        }
    }
    Ok(())
}
