import sys; sys.path.insert(0,'/tmp/wt/pipe')
import random, duckdb, sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.annotate_types import annotate_types
from proto_test import SCHEMA, rnd_row
from replicator.pipelines.signed import invertible, WEIGHT
QS=["SELECT a.k, count(*) n, sum(a.v) s, avg(a.v) m, count(a.s) t, sum(a.v) * 2 + count(*) z FROM a GROUP BY a.k",
"SELECT count(*) n, sum(a.v) s FROM a WHERE a.v > 2",
"SELECT b.c, count(*) n, sum(a.v * b.w) s FROM a JOIN b ON a.k = b.k GROUP BY b.c",
"SELECT c.z, b.c, count(*) n, sum(a.v) s FROM a JOIN b ON a.k = b.k JOIN c ON b.c = c.c WHERE c.z > 2 GROUP BY c.z, b.c",
"SELECT a1.k, count(*) n FROM a a1 JOIN a a2 ON a1.k = a2.k AND a1.id < a2.id GROUP BY a1.k"]
def run(seed):
    r=random.Random(seed); con=duckdb.connect()
    old={t:{i:rnd_row(r,t,i) for i in range(r.randint(0,8))} for t in SCHEMA}; new={}
    for t in SCHEMA:
        n=dict(old[t])
        for _ in range(r.choice([0,1,1,2,3])):
            i=r.randint(0,9)
            if r.random()<.3: n.pop(i,None)
            else: n[i]=rnd_row(r,t,i)
        new[t]=n
    def load(name,t,rows,w=False):
        cols=", ".join(f'"{c}" {"varchar" if ty=="string" else ty}' for c,ty in SCHEMA[t].items())+(f', {WEIGHT} int' if w else '')
        con.execute(f'create or replace table "{name}" ({cols})')
        if rows: con.executemany(f'insert into "{name}" values ({",".join("?"*(len(SCHEMA[t])+w))})',rows)
    for t in SCHEMA:
        before=[v+(-1,) for k,v in old[t].items() if new[t].get(k)!=v]; after=[v+(1,) for k,v in new[t].items() if old[t].get(k)!=v]
        load(f"changed:{t}",t,before+after,True); load(f"now:{t}",t,list(new[t].values())); load("old_"+t,t,list(old[t].values()))
    for sql in QS:
        q=annotate_types(qualify(sqlglot.parse_one(sql,dialect="spark"),schema=SCHEMA,dialect="spark"),schema=SCHEMA)
        inv=invertible(q)
        def state(s):
            z=q.copy()
            for t in z.find_all(exp.Table): t.set("alias",exp.TableAlias(this=exp.to_identifier(t.alias_or_name))); t.set("this",exp.to_identifier(s+t.name,quoted=True))
            return z
        def stq(s):
            z=state(s); keys=[exp.alias_(e.copy(),n,quoted=True) for n,e in inv.keys.items()]
            cols=keys+[exp.alias_(exp.Count(this=exp.Star()),"rows",quoted=True)]
            for t in inv.terms: cols.append(exp.alias_((exp.Sum if t.is_sum else exp.Count)(this=t.value.copy()),t.name,quoted=True))
            z.set("expressions",cols); return z.sql("duckdb")
        aliases=[t.alias_or_name for t in q.find_all(exp.Table)]
        ks=list(inv.keys)
        d=inv.changes(aliases).sql("duckdb")
        allc=", ".join([f'"{k}"' for k in ks]+[f'sum("{c}") "{c}"' for c in inv.state])
        grp=f" group by {', '.join(chr(34)+k+chr(34) for k in ks)}" if ks else ""
        merged=f"select {allc} from ({stq('old_')} union all {d}) {grp} having sum(rows) > 0" if ks else f"select {allc} from ({stq('old_')} union all {d})"
        outs=", ".join(([f'state."{n}"' for n in ks])+[f'{e.sql("duckdb")} AS "{n}"' for n,e in inv.results.items()])
        got=con.execute(f"select {outs} from ({merged}) state").fetchall()
        order=[q.named_selects.index(n) for n in [*ks,*inv.results]]
        want=[tuple(x[i] for i in order) for x in con.execute(state("now:").sql("duckdb")).fetchall()]
        norm=lambda rows: sorted(repr(tuple(None if v is None else (float(v) if not isinstance(v,str) else v) for v in x)) for x in rows)
        assert norm(got)==norm(want),(seed,sql,d,norm(got),norm(want))
for s in range(int(sys.argv[1]),int(sys.argv[2])): run(s)
print("ok")
