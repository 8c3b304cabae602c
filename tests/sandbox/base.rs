//! runner/base: what developers use works in it, under the profile, without a network and with a home below /tmp.

use crate::harness::{BASE, Desk, Place};

fn base() -> (Place, Desk) {
    let place = Place::on(BASE);
    let desk = place.desk();
    (place, desk)
}

/// Runs lines that stop at the first failure, and gives what they print.
#[track_caller]
fn lines(desk: &mut Desk, script: &str) -> String {
    desk.bash_for(170.0, &format!("set -eu; cd /tmp; {script}")).ok().to_owned()
}

/// multiprocessing needs semaphores in /dev/shm, processes and pipes; what it leaves is gone.
#[test]
fn python_with_processes_threads_and_a_database() {
    let (_place, mut desk) = base();
    desk.call(
        "write",
        &serde_json::json!({"path": "/tmp/work.py", "content": r#"
import asyncio, concurrent.futures, multiprocessing, sqlite3, subprocess, sys, tempfile

def square(number):
    return number * number

async def said():
    process = await asyncio.create_subprocess_exec("echo", "asyncio", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()

if __name__ == "__main__":
    for method in ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, sum(pool.map(square, range(10))))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        print("threads", sum(threads.map(square, range(10))))
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=queue.put, args=("queue",))
    child.start(); print(queue.get()); child.join()
    with tempfile.NamedTemporaryFile() as file:
        with sqlite3.connect(file.name) as database:
            database.execute("create table t (n)")
            database.executemany("insert into t values (?)", [(n,) for n in range(5)])
            print("sqlite", database.execute("select sum(n) from t").fetchone()[0])
    print(asyncio.run(said()), sys.version_info.major)
"#}),
    )
    .ok();
    assert_eq!(
        lines(&mut desk, "python work.py"),
        "fork 285\nspawn 285\nforkserver 285\nthreads 285\nqueue\nsqlite 10\nasyncio 3\n"
    );
}

/// Global settings, a commit, a clone of a local repository, a patch that is made and applied, a signed commit.
#[test]
fn git_commits_clones_and_patches() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r"git config --global user.name Ada; git config --global user.email ada@example.invalid
          git init -q one && cd one && echo first >file && git add . && git commit -qm first
          git clone -q /tmp/one /tmp/two && git clone -q file:///tmp/one /tmp/three
          echo second >>file && git diff >/tmp/change.patch && git -C /tmp/two apply /tmp/change.patch
          cmp file /tmp/two/file && git stash -q && git gc -q && git fsck && git log --format='%an %s' | cat
          ssh-keygen -q -t ed25519 -N '' -f /tmp/key && git config --global gpg.format ssh
          git config --global user.signingkey /tmp/key && git commit -q -S --allow-empty -m signed && git cat-file commit HEAD | grep -c 'BEGIN SSH SIGNATURE'
          cat $HOME/.gitconfig | head -n 2",
    );
    assert_eq!(said, "Ada first\n1\n[user]\n\tname = Ada\n");
}

/// Bug 37: npm writes to its home, which must be below /tmp.
#[test]
fn npm_installs_a_local_package_and_runs_scripts() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r#"mkdir -p greet app && cd greet
          echo '{"name": "greet", "version": "1.0.0", "main": "index.js", "bin": "bin.js"}' >package.json
          echo 'module.exports = name => `Hello, ${name}!`' >index.js
          printf '#!/usr/bin/env node\nconsole.log("from bin")\n' >bin.js
          cd ../app && npm init -y >/dev/null && npm install --offline --no-audit --no-fund --silent ../greet
          npm pkg set scripts.hello='node -p "require(\"greet\")(\"npm\")"' && npm run --silent hello && npx --offline greet
          cd ../greet && npm pack --silent && cd ../app && npm install --offline --no-audit --no-fund --silent ../greet/greet-1.0.0.tgz
          npm config set --location=user fund false && npm config get cache && cat $HOME/.npmrc"#,
    );
    assert_eq!(said, "Hello, npm!\nfrom bin\ngreet-1.0.0.tgz\n/tmp/home/.npm\nfund=false\n");
}

/// An environment with a package of a local folder and one of a wheel; and one in the home, without an environment.
#[test]
fn pip_installs_local_packages_without_a_network() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r#"mkdir -p greet/src/greet && cd greet
          printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "greet"\nversion = "1.0"\n[project.scripts]\ngreet = "greet:main"\n' >pyproject.toml
          printf 'def main():\n    print("hello from", __file__.split("/lib/")[0])\n' >src/greet/__init__.py
          python3 -m venv --system-site-packages /tmp/venv && python3 -m venv /tmp/plain
          pip="pip --quiet --disable-pip-version-check"
          /tmp/venv/bin/$pip install --no-index --no-build-isolation . && /tmp/venv/bin/greet
          $pip wheel --no-index --no-build-isolation --no-deps -w /tmp/wheels . && ls /tmp/wheels
          /tmp/plain/bin/$pip install --no-index /tmp/wheels/*.whl && /tmp/plain/bin/greet
          $pip install --no-index --no-warn-script-location /tmp/wheels/*.whl && $HOME/.local/bin/greet"#,
    );
    assert_eq!(
        said,
        "hello from /tmp/venv\ngreet-1.0-py3-none-any.whl\nhello from /tmp/plain\nhello from /tmp/home/.local\n"
    );
}

/// A C compiler, make, and programs that run from /tmp, threads and a debugger's information included.
#[test]
fn gcc_and_make_build_programs_that_run() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r#"printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *say(void *what) { return puts(what) < 0 ? what : NULL; }\nint main(void) { pthread_t t; pthread_create(&t, NULL, say, "thread"); return pthread_join(t, NULL); }\n' >main.c
          printf 'all: main lib.so\nmain: main.c\n\tgcc -O2 -g -Wall -pthread -o $@ $<\nlib.so: main.c\n\tgcc -shared -fPIC -flto -o $@ $<\n' >Makefile
          make -s -j4 && ./main && gcc -static -pthread -o static main.c && ./static && file -b lib.so | cut -d, -f1"#,
    );
    assert_eq!(said, "thread\nthread\nELF 64-bit LSB shared object\n");
}

/// Workers, child processes, promises on files, the home and the user, modules and a server on the own host.
#[test]
fn node_runs_workers_processes_and_servers() {
    let (_place, mut desk) = base();
    desk.call(
        "write",
        &serde_json::json!({"path": "/tmp/work.mjs", "content": r#"
import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import http from "node:http";
import os from "node:os";
import { Worker } from "node:worker_threads";

const worker = new Worker("require('worker_threads').parentPort.postMessage('worker')", { eval: true });
console.log(await new Promise(resolve => worker.once("message", resolve)));
console.log(execFileSync("echo", ["child"]).toString().trim());
await writeFile("/tmp/x", "file");
console.log(await readFile("/tmp/x", "utf8"), os.userInfo().username, os.homedir());
const server = http.createServer((_, answer) => answer.end("served")).listen(0, "localhost", async () => {
    console.log(await (await fetch(`http://localhost:${server.address().port}/`)).text());
    server.close();
});
"#}),
    )
    .ok();
    assert_eq!(lines(&mut desk, "node work.mjs 2>/dev/null"), "worker\nchild\nfile agent /tmp/home\nserved\n");
}

/// Archives and keys, JSON and text, patches and the like.
#[test]
fn the_small_tools_work() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r#"mkdir -p tree/sub && echo needle >tree/sub/file && ln -s file tree/sub/link && chmod 755 tree/sub/file
          for form in gz bz2 xz; do tar -caf tree.tar.$form tree && mkdir out.$form && tar -xf tree.tar.$form -C out.$form && diff -r tree out.$form/tree; done
          zip -qr tree.zip tree && unzip -q tree.zip -d unzipped && cmp tree/sub/file unzipped/tree/sub/file
          ssh-keygen -q -t rsa -b 2048 -N '' -f rsa && ssh-keygen -lf rsa.pub | awk '{print $1, $NF}'
          echo '{"a": [1, 2]}' | jq -c '.a | add'
          rg --no-heading needle tree && rg --files tree
          echo changed >new && (diff -u tree/sub/file new >change || true) && patch -s tree/sub/file change && cat tree/sub/file
          printf abc | xxd -p; printf 'b\na\n' | sort | tr '\n' ' '; seq 3 | paste -sd+ | tee sum; openssl dgst -sha256 sum | cut -d' ' -f1
          ps -o comm= -p $$; hostname; find tree -name 'f*' -printf '%f\n'; tree -i --noreport tree | head -n 2 | tail -n 1"#,
    );
    assert_eq!(
        said,
        "2048 (RSA)\n3\ntree/sub/file:needle\ntree/sub/file\nchanged\n616263\na b 1+2+3\nSHA2-256(sum)=\nbash\nagent\nfile\nsub\n"
    );
}

/// There is no network, and each says so at once instead of waiting for it. The own host can be talked to.
#[test]
fn without_a_network_clients_fail_at_once() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r"curl -sS https://example.invalid 2>&1 || echo $?
          git clone -q https://example.invalid/x 2>&1 | head -n 1 | grep -o 'Could.*'
          ssh -T -o BatchMode=yes example.invalid 2>&1 | head -n 1 | cut -d: -f1,2
          python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 & 
          curl -s --retry 50 --retry-connrefused --retry-delay 1 -o /dev/null -w '%{http_code}\n' http://localhost:8000/",
    );
    assert_eq!(
        said,
        "curl: (6) Could not resolve host: example.invalid\n6\nCould not resolve host: example.invalid\nssh: Could not resolve hostname example.invalid\n200\n"
    );
}

/// Nothing in it is setuid, nothing is a device, and it says nothing of the machine that made it.
#[test]
fn the_image_holds_no_privilege_and_no_trace_of_its_maker() {
    let (_place, mut desk) = base();
    let said = lines(
        &mut desk,
        r"find / -xdev -type f -perm /6000 2>/dev/null | wc -l
          find / -xdev -path /tmp -prune -o \( -type b -o -type c -o -type p \) -print 2>/dev/null | wc -l
          ls -A /var/log /var/cache /var/lib/apt/lists /run /root 2>/dev/null | grep -v : | grep -c . || true
          readlink /var/tmp; test ! -e /etc/machine-id && test ! -e /build && echo clean; stat -c '%a %U' /tmp
          grep -l '@' /etc/apt/sources.list || true",
    );
    assert_eq!(said, "0\n0\n0\n../tmp\nclean\n1777 root\n");
}
