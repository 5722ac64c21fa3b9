import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Writes and reads rows of an HBase.
 *
 *   Rows put FROM   writes rows from FROM on, and prints the number of each that is acknowledged
 *   Rows check N    reads rows 0 to N-1
 */
public final class Rows {
  private static final TableName TABLE = TableName.valueOf("rows");
  private static final byte[] FAMILY = Bytes.toBytes("f"), COLUMN = Bytes.toBytes("c");

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    try (Connection c = ConnectionFactory.createConnection(conf)) {
      try (Admin admin = c.getAdmin()) {
        if (!admin.tableExists(TABLE)) {
          admin.createTable(TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY)).build());
        }
      }
      long n = Long.parseLong(args[1]);
      try (Table t = c.getTable(TABLE)) {
        if (args[0].equals("put")) {
          for (long i = n; ; i++) {
            t.put(new Put(row(i)).addColumn(FAMILY, COLUMN, value(i)));
            System.out.println(i);
          }
        }
        for (long i = 0; i < n; i++) {
          byte[] got = t.get(new Get(row(i))).getValue(FAMILY, COLUMN);
          if (!Arrays.equals(got, value(i))) {
            System.err.println("row " + i + " has " + Bytes.toStringBinary(got == null ? new byte[0] : got));
            System.exit(1);
          }
        }
        System.out.println("whole");
      }
    }
  }

  private static byte[] row(long i) { return Bytes.toBytes(String.format("%012d", i)); }

  private static byte[] value(long i) { return Bytes.toBytes("value " + i); }
}
