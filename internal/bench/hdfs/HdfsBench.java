import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.io.EnumSetWritable;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ToolRunner;

/**
 * Measures a running HDFS through its own client: one work a run, one line of JSON for each result.
 *
 * <pre>java [-Dn=… -Dthreads=… …] HdfsBench hdfs://HOST:PORT WORK</pre>
 *
 * Works on bytes (smallfile, big, dfsio) and on names (mkdirs, create, stat, list100, rename, delete) take
 * webhdfs://HOST:PORT, too; those on names then make the calls of FileSystem instead of ClientProtocol's.
 *
 * Every work runs twice in the same JVM: a quarter of its size to warm up, then timed. Calls are spread over several
 * connections, which Hadoop by itself would not do. System properties that begin with {@code hdfs.} go into the
 * client's configuration without that prefix. README.md lists the works and the properties.
 */
public final class HdfsBench {
  private static final int THREADS = Integer.getInteger("threads", 32);
  private static final int CONNECTIONS = Integer.getInteger("connections", 4);
  private static final int N = Integer.getInteger("n", 20_000);
  private static final int FILES = Integer.getInteger("files", 1);
  private static final int CLIENTS = Integer.getInteger("clients", 1000);
  private static final int MB = Integer.getInteger("mb", 1024);
  /** Directories that the files of a work are spread over. */
  private static final int FANOUT = 64;
  private static final long BLOCK_SIZE = 128L << 20;

  private final String work;
  private final List<FileSystem> fs = new ArrayList<>();
  private final List<ClientProtocol> nn = new ArrayList<>();

  /** One operation: by which worker, and its number. */
  private interface Op {
    void run(int worker, int i) throws Exception;
  }

  /** What happens below one directory: first, untimed, for n operations; then each operation. */
  private interface Prepare {
    Op in(String dir, int n) throws Exception;
  }

  private HdfsBench(URI uri, String work) throws Exception {
    this.work = work;
    String user = UserGroupInformation.getCurrentUser().getShortUserName();
    for (int i = 0; i < CONNECTIONS; i++) {
      // Hadoop shares one connection among all calls of one UserGroupInformation.
      UserGroupInformation own = UserGroupInformation.createRemoteUser(user);
      fs.add(own.doAs((PrivilegedExceptionAction<FileSystem>) () -> newFileSystem(uri)));
      if (fs.get(i) instanceof DistributedFileSystem) {
        nn.add(((DistributedFileSystem) fs.get(i)).getClient().getNamenode());
      }
    }
  }

  private static FileSystem newFileSystem(URI uri) throws IOException {
    Configuration conf = new Configuration();
    for (String name : System.getProperties().stringPropertyNames()) {
      if (name.startsWith("hdfs.")) {
        conf.set(name.substring("hdfs.".length()), System.getProperty(name));
      }
    }
    return FileSystem.newInstance(uri, conf);
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("usage: HdfsBench hdfs://HOST:PORT|webhdfs://HOST:PORT WORK");
      System.exit(2);
    }
    URI uri = new URI(args[0]);
    if (args[1].equals("await")) {
      await(uri);
    } else if (args[1].equals("disk")) {
      disk();
    } else {
      new HdfsBench(uri, args[1]).run(uri);
    }
    System.exit(0); // threads of abandoned writers are still there
  }

  private void run(URI uri) throws Exception {
    Path root = new Path("/bench-" + work);
    fs.get(0).delete(root, true);
    fs.get(0).mkdirs(root);
    switch (work) {
      case "mkdirs":
        twice(N, (dir, n) -> (w, i) -> check(mkdirs(w, dir + "/d" + i), "a directory was not made"));
        break;
      case "create":
        twice(N, (dir, n) -> (w, i) -> createAndClose(w, file(dir, i)));
        break;
      case "stat":
        twice(N, withFiles(this::stat));
        break;
      case "open":
        twice(N, withFiles((w, file) -> nn(w).getBlockLocations(file, 0, Long.MAX_VALUE)));
        break;
      case "rename":
        twice(N, withFiles((w, file) -> check(rename(w, file, file + "-renamed"), file + " was not renamed")));
        break;
      case "delete":
        twice(N, withFiles((w, file) -> check(delete(w, file), file + " was not deleted")));
        break;
      case "list100":
        twice(N, (dir, n) -> {
          parallel(THREADS, 100, (w, i) -> createAndClose(w, dir + "/f" + i));
          return (w, i) -> {
            int got = list(w, dir);
            check(got == 100, got + " entries listed instead of 100");
          };
        });
        break;
      case "renew": // by CLIENTS holders, each with FILES open files
        twice(N, (dir, n) -> {
          parallel(THREADS, CLIENTS * FILES, (w, i) -> create(w, dir + "/" + i % CLIENTS + "/f" + i, holder(dir, i)));
          return (w, i) -> nn(w).renewLease(holder(dir, i), null);
        });
        break;
      case "smallfile": { // durable only as far as HDFS makes it so: a close does not sync
        byte[] b = bytes(1024);
        twice(N, (dir, n) -> (w, i) -> {
          try (FSDataOutputStream out = fs(w).create(new Path(file(dir, i)))) {
            out.write(b);
          }
        });
        break;
      }
      case "hflush": // THREADS writers, a file each: 100 B in the memory of the datanode
        twice(N, appends(FSDataOutputStream::hflush));
        break;
      case "hsync": // the same, on its disk
        twice(N, appends(FSDataOutputStream::hsync));
        break;
      case "big":
        big(root);
        break;
      case "dfsio":
        dfsio(root);
        break;
      case "recover":
        recover(uri, root);
        break;
      case "bulkput":
        bulkPut(uri, root);
        break;
      case "bulkrm": {
        parallel(THREADS, N, (w, i) -> createAndClose(w, file("/bench-bulkrm/tree", i)));
        long began = System.nanoTime();
        check(fs.get(0).delete(new Path(root, "tree"), true), "the tree was not removed");
        print("ops_per_s", N / seconds(began));
        break;
      }
      case "fill": { // N empty files that stay
        long began = System.nanoTime();
        parallel(THREADS, N, (w, i) -> createAndClose(w, String.format("/fill/d%d/file-%08d", i / 1000, i)));
        print("ops_per_s", N / seconds(began));
        break;
      }
      default:
        throw new IllegalArgumentException("there is no work " + work);
    }
    fs.get(0).delete(root, true);
  }

  // ---- works that are not a plain loop of equal operations

  /** Sequential write, then read, of one file. */
  private void big(Path root) throws Exception {
    byte[] b = bytes(1 << 20);
    Path file = new Path(root, "big");
    double write = 0;
    double read = 0;
    for (int mb : new int[] {Math.max(1, MB / 8), MB}) { // the first to warm up
      long began = System.nanoTime();
      try (FSDataOutputStream out = fs.get(0).create(file, true)) {
        for (int i = 0; i < mb; i++) {
          out.write(b);
        }
      }
      write = mb / seconds(began);
      began = System.nanoTime();
      long got = 0;
      try (FSDataInputStream in = fs.get(0).open(file)) {
        for (int k; (k = in.read(b)) > 0; ) {
          got += k;
        }
      }
      check(got == (long) mb << 20, got + " bytes read of " + mb + " MiB");
      read = mb / seconds(began);
    }
    print("write_mib_per_s", write, "read_mib_per_s", read);
  }

  /** FILES files of MB MiB in all, written, then read, by a thread each, as the mappers of Hadoop's TestDFSIO do. */
  private void dfsio(Path root) throws Exception {
    byte[] b = bytes(1 << 20);
    double write = 0;
    double read = 0;
    for (int mb : new int[] {Math.max(1, MB / FILES / 8), Math.max(1, MB / FILES)}) { // the first to warm up
      long began = System.nanoTime();
      parallel(FILES, FILES, (w, f) -> {
        try (FSDataOutputStream out = fs(w).create(new Path(root, "io" + f), true)) {
          for (int i = 0; i < mb; i++) {
            out.write(b);
          }
        }
      });
      write = (double) mb * FILES / seconds(began);
      began = System.nanoTime();
      parallel(FILES, FILES, (w, f) -> {
        byte[] mine = new byte[1 << 20];
        long got = 0;
        try (FSDataInputStream in = fs(w).open(new Path(root, "io" + f))) {
          for (int k; (k = in.read(mine)) > 0; ) {
            got += k;
          }
        }
        check(got == (long) mb << 20, got + " bytes read of " + mb + " MiB");
      });
      read = (double) mb * FILES / seconds(began);
    }
    print("write_mib_per_s", write, "read_mib_per_s", read);
  }

  /** A file whose writer was abandoned after a flush, until recoverLease has closed it. */
  private void recover(URI uri, Path root) throws Exception {
    long[] took = new long[N];
    for (int i = 0; i < N; i++) {
      Path file = new Path(root, "f" + i);
      FSDataOutputStream abandoned = newFileSystem(uri).create(file);
      abandoned.write(bytes(1000));
      abandoned.hflush();
      long began = System.nanoTime();
      DistributedFileSystem dfs = (DistributedFileSystem) fs.get(0);
      for (boolean closed = dfs.recoverLease(file); !closed; closed = dfs.isFileClosed(file)) {
        Thread.sleep(5);
      }
      took[i] = System.nanoTime() - began;
      check(fs.get(0).getFileStatus(file).getLen() == 1000, "flushed bytes are missing");
    }
    Arrays.sort(took);
    print("p50_ms", took[N / 2] / 1e6, "max_ms", took[N - 1] / 1e6);
  }

  /** A local tree of N files of 100 B, by {@code hdfs dfs -put} with THREADS threads. */
  private void bulkPut(URI uri, Path root) throws Exception {
    File tree = Files.createTempDirectory("bench-hdfs-tree").toFile();
    for (int i = 0; i < N; i++) {
      File dir = new File(tree, String.valueOf(i % FANOUT));
      check(dir.isDirectory() || dir.mkdir(), "no directory " + dir);
      Files.write(new File(dir, "f" + i).toPath(), bytes(100));
    }
    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", uri.toString());
    long began = System.nanoTime();
    int code = ToolRunner.run(new FsShell(conf),
        new String[] {"-put", "-t", String.valueOf(THREADS), tree.toString(), root + "/tree"});
    double rate = N / seconds(began);
    check(code == 0, "hdfs dfs -put ended with " + code);
    print("ops_per_s", rate);
    for (int i = 0; i < N; i++) {
      Files.delete(new File(tree, i % FANOUT + "/f" + i).toPath());
    }
    for (int i = 0; i < Math.min(N, FANOUT); i++) {
      Files.delete(new File(tree, String.valueOf(i)).toPath());
    }
    Files.delete(tree.toPath());
  }

  /** Until the namenode has left safe mode and so many datanodes are there; in ms since an instant. */
  private static void await(URI uri) throws Exception {
    long since = Long.getLong("since", System.currentTimeMillis());
    int datanodes = Integer.getInteger("datanodes", 1);
    System.setProperty("hdfs.ipc.client.connect.max.retries", "0");
    DistributedFileSystem fs = (DistributedFileSystem) newFileSystem(uri);
    for (long end = System.currentTimeMillis() + Long.getLong("timeout", 120_000); ; Thread.sleep(20)) {
      try {
        if (!fs.setSafeMode(SafeModeAction.GET) && fs.getDataNodeStats(DatanodeReportType.LIVE).length >= datanodes) {
          break;
        }
      } catch (IOException e) {
        if (System.currentTimeMillis() > end) {
          throw e;
        }
        continue;
      }
      check(System.currentTimeMillis() < end, "still in safe mode, or without a datanode");
    }
    print(System.out, "await", "ms", (double) (System.currentTimeMillis() - since));
  }

  /** What the disk takes without HDFS: a file of data, synced at its end. */
  private static void disk() throws IOException {
    java.nio.file.Path file = Files.createTempFile("bench-disk", null);
    ByteBuffer b = ByteBuffer.allocateDirect(1 << 20).put(bytes(1 << 20));
    long began = System.nanoTime();
    try (FileChannel out = FileChannel.open(file, StandardOpenOption.WRITE)) {
      for (int i = 0; i < MB; i++) {
        for (b.rewind(); b.hasRemaining(); ) {
          out.write(b);
        }
      }
      out.force(true);
    }
    print(System.out, "disk", "write_mib_per_s", MB / seconds(began));
    Files.delete(file);
  }

  // ---- calls

  private FileSystem fs(int worker) {
    return fs.get(worker % fs.size());
  }

  private ClientProtocol nn(int worker) {
    return nn.get(worker % nn.size());
  }

  // Calls on names: those of ClientProtocol, by another protocol than hdfs:// those of FileSystem.

  private boolean mkdirs(int worker, String dir) throws IOException {
    return nn.isEmpty() ? fs(worker).mkdirs(new Path(dir)) : nn(worker).mkdirs(dir, FsPermission.getDirDefault(), true);
  }

  private void stat(int worker, String file) throws IOException {
    Object st = nn.isEmpty() ? fs(worker).getFileStatus(new Path(file)) : nn(worker).getFileInfo(file);
    check(st != null, file + " is not there");
  }

  private boolean rename(int worker, String from, String to) throws IOException {
    return nn.isEmpty() ? fs(worker).rename(new Path(from), new Path(to)) : nn(worker).rename(from, to);
  }

  private boolean delete(int worker, String file) throws IOException {
    return nn.isEmpty() ? fs(worker).delete(new Path(file), false) : nn(worker).delete(file, false);
  }

  private int list(int worker, String dir) throws IOException {
    return nn.isEmpty() ? fs(worker).listStatus(new Path(dir)).length
        : nn(worker).getListing(dir, new byte[0], false).getPartialListing().length;
  }

  private static String file(String dir, int i) {
    return dir + "/" + i % FANOUT + "/f" + i;
  }

  private static String holder(String dir, int i) {
    return "holder-" + dir + "-" + i % CLIENTS;
  }

  /** Makes a file, and returns its inode. */
  private long create(int worker, String file, String holder) throws IOException {
    return nn(worker).create(file, FsPermission.getFileDefault(), holder,
        new EnumSetWritable<>(EnumSet.of(CreateFlag.CREATE)), true, (short) 1, BLOCK_SIZE,
        CryptoProtocolVersion.supported(), null, null).getFileId();
  }

  /** Makes a file as Hadoop's client does, which names the inode when it is complete. */
  private void createAndClose(int worker, String file) throws IOException {
    if (nn.isEmpty()) {
      fs(worker).create(new Path(file), false).close();
      return;
    }
    String holder = "worker-" + worker;
    long inode = create(worker, file, holder);
    check(nn(worker).complete(file, holder, null, inode), file + " was not closed");
  }

  private interface FileOp {
    void run(int worker, String file) throws Exception;
  }

  /** An operation on each of n closed empty files. */
  private Prepare withFiles(FileOp op) {
    return (dir, n) -> {
      parallel(THREADS, n, (w, i) -> createAndClose(w, file(dir, i)));
      return (w, i) -> op.run(w, file(dir, i));
    };
  }

  private interface Flush {
    void run(FSDataOutputStream out) throws IOException;
  }

  private Prepare appends(Flush flush) {
    byte[] b = bytes(100);
    return (dir, n) -> {
      FSDataOutputStream[] out = new FSDataOutputStream[THREADS];
      for (int w = 0; w < THREADS; w++) {
        out[w] = fs(w).create(new Path(dir + "/f" + w));
      }
      return (w, i) -> {
        out[w].write(b);
        flush.run(out[w]);
      };
    };
  }

  // ---- measuring

  private void twice(int n, Prepare prepare) throws Exception {
    int warm = Math.max(1, n / 4);
    parallel(THREADS, warm, prepare.in("/bench-" + work + "/warm", warm));
    Op op = prepare.in("/bench-" + work + "/timed", n);
    long began = System.nanoTime();
    long[] took = parallel(THREADS, n, op);
    double rate = n / seconds(began);
    Arrays.sort(took);
    print("ops_per_s", rate, "p50_ms", took[n / 2] / 1e6, "p99_ms", took[(int) (n * 99L / 100)] / 1e6);
  }

  /** Runs operations 0 … n−1 by so many threads; how long each took, in ns. */
  private static long[] parallel(int threads, int n, Op op) throws Exception {
    long[] took = new long[n];
    AtomicInteger next = new AtomicInteger();
    AtomicReference<Exception> failed = new AtomicReference<>();
    Thread[] all = new Thread[threads];
    for (int t = 0; t < threads; t++) {
      final int worker = t;
      all[t] = new Thread(() -> {
        try {
          for (int i; failed.get() == null && (i = next.getAndIncrement()) < n; ) {
            long began = System.nanoTime();
            op.run(worker, i);
            took[i] = System.nanoTime() - began;
          }
        } catch (Exception e) {
          failed.compareAndSet(null, e);
        }
      });
      all[t].start();
    }
    for (Thread t : all) {
      t.join();
    }
    if (failed.get() != null) {
      throw failed.get();
    }
    return took;
  }

  private static double seconds(long began) {
    return (System.nanoTime() - began) / 1e9;
  }

  private static byte[] bytes(int n) {
    byte[] b = new byte[n];
    new Random(1).nextBytes(b);
    return b;
  }

  private static void check(boolean ok, String otherwise) throws IOException {
    if (!ok) {
      throw new IOException(otherwise);
    }
  }

  private void print(Object... figures) {
    print(System.out, work, figures);
  }

  private static void print(java.io.PrintStream out, String work, Object... figures) {
    StringBuilder line = new StringBuilder("{\"name\":\"" + work + "\"");
    for (int i = 0; i < figures.length; i += 2) {
      line.append(String.format(Locale.ROOT, ",\"%s\":%.4f", figures[i], figures[i + 1]));
    }
    out.println(line.append('}'));
  }
}
