import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Makes the calls of Flink's recoverable writer (HadoopRecoverableFsDataOutputStream in Flink 1.20):
 * what was written after the last checkpoint is cut off before the writer's successor continues.
 *
 *   Recoverable URI write   writes to /part, prints the length at a checkpoint, writes more, and dies
 *   Recoverable URI N       recovers /part at length N, adds to it, and publishes it as /done
 */
public final class Recoverable {
  public static void main(String[] args) throws Exception {
    Path part = new Path("/part"), done = new Path("/done");
    try (DistributedFileSystem fs = (DistributedFileSystem) new Path(args[0]).getFileSystem(new Configuration())) {
      if (args[1].equals("write")) {
        FSDataOutputStream out = fs.create(part, false);
        out.write("before ".getBytes());
        out.hflush();
        out.hsync();
        System.out.println(out.getPos());
        out.write("lost".getBytes());
        out.hflush();
        System.out.flush();
        Runtime.getRuntime().halt(0);
      }
      long length = Long.parseLong(args[1]);
      fs.recoverLease(part);
      while (!fs.isFileClosed(part)) {
        Thread.sleep(100);
        fs.recoverLease(part);
      }
      if (!fs.truncate(part, length)) {
        while (!fs.isFileClosed(part)) {
          Thread.sleep(100);
        }
      }
      if (fs.getFileStatus(part).getLen() != length) {
        throw new IllegalStateException("after truncate the file has " + fs.getFileStatus(part).getLen() + " bytes");
      }
      try (FSDataOutputStream out = fs.append(part)) {
        if (out.getPos() != length) {
          throw new IllegalStateException("append begins at " + out.getPos());
        }
        out.write("after".getBytes());
        out.hsync();
      }
      if (!fs.rename(part, done)) {
        throw new IllegalStateException("the file was not renamed");
      }
    }
  }
}
