//! Streams, tables and shuffles on regions of several servers.

use store::data::{Shape, ShufflePlan, StreamReader, StreamWriter, Table};
use store::meta::record::Class;
use store::{Allocation, Rights, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

#[test]
fn streams_tables_and_shuffles_give_back_what_they_were_given() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    let allocation =
        Allocation { unit: 4096, copies: 2, ..Allocation::new(1 << 20, Class::Volatile) };
    for name in ["stream", "table", "shuffle"] {
        store.create(name, &allocation).unwrap();
    }
    let map = |name| store.map(name, BOTH).unwrap();
    assert!(StreamReader::open(map("stream")).is_err(), "zeros are no stream");
    let mut writer = StreamWriter::create(map("stream")).unwrap();
    let mut reader = StreamReader::open(map("stream")).unwrap();
    let record = |number: usize| vec![u8::try_from(number % 251).unwrap(); number % 700];
    (0..300).for_each(|number| writer.append(&record(number)).unwrap());
    writer.flush().unwrap();
    (0..300).for_each(|number| assert_eq!(reader.next_record().unwrap(), Some(record(number))));
    assert_eq!(reader.next_record().unwrap(), None);
    let mut writer = StreamWriter::open(writer.into_region()).unwrap();
    writer.append(b"more").unwrap();
    writer.flush().unwrap();
    assert_eq!(reader.next_record().unwrap().unwrap(), b"more");
    let full = writer.append(&vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(full, StoreError::Full(_)));

    let shape = Shape { key_max: 16, value_max: 100, slots: 1000 };
    let table = Table::create(map("table"), shape).unwrap();
    let key = |number: u32| number.to_le_bytes();
    (0..300).for_each(|number| table.put(&key(number), &[7; 50]).unwrap());
    (0..300).step_by(3).for_each(|number| assert!(table.remove(&key(number)).unwrap()));
    (1..300).step_by(3).for_each(|number| table.put(&key(number), b"again").unwrap());
    let other = Table::open(map("table")).unwrap();
    for number in 0..300 {
        let expected = [None, Some(b"again".to_vec()), Some(vec![7; 50])];
        let expected = &expected[usize::try_from(number % 3).unwrap()];
        assert_eq!(other.get(&key(number)).unwrap(), *expected, "{number}");
    }
    assert!(matches!(table.put(&[0; 17], b""), Err(StoreError::Full(_))));

    let plan = ShufflePlan::new(&[vec![1000, 9000], vec![5000, 0]]).unwrap();
    let region = map("shuffle");
    plan.write(&region, 0, &[(0, &[1; 1000]), (1, &[2; 9000])]).unwrap();
    plan.write(&region, 1, &[(0, &[3; 5000])]).unwrap();
    assert_eq!(plan.read(&region, 0).unwrap(), [vec![1; 1000], vec![3; 5000]].concat());
    assert_eq!(plan.read(&region, 1).unwrap(), vec![2; 9000]);
    plan.write(&region, 1, &[(0, &[3; 5])]).unwrap_err();
}
