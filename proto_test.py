import random, sys, duckdb, sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
sys.path.insert(0,'/tmp/wt/pipe')
import importlib.util
from replicator.pipelines import affected as A
SCHEMA={"a":{"id":"int","k":"int","v":"int","s":"string"},"b":{"id":"int","k":"int","w":"int","c":"string"},"c":{"id":"int","c":"string","z":"int"}}
def rnd_row(r,t,i):
    n=lambda x:None if r.random()<.15 else x
    if t=="a": return (i,n(r.randint(0,4)),n(r.randint(0,9)),n(r.choice("xyz")))
    if t=="b": return (i,n(r.randint(0,4)),n(r.randint(0,9)),n(r.choice("pqr")))
    return (i,n(r.choice("pqr")),n(r.randint(0,9)))
QS=["SELECT a.id, a.v+1 AS v1 FROM a WHERE a.v > 3",
"SELECT a.k, count(*) n, sum(a.v) s, min(a.s) m FROM a GROUP BY a.k HAVING count(*) > 1",
"SELECT a.k, a.s, count(DISTINCT a.v) n FROM a WHERE a.v < 8 GROUP BY a.k, a.s",
"SELECT b.c, count(*) n, sum(a.v) s FROM a JOIN b ON a.k = b.k GROUP BY b.c",
"SELECT b.c, count(*) n, sum(a.v) s FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.c",
"SELECT b.c, count(*) n, sum(a.v) s FROM a LEFT JOIN b ON a.k = b.k AND b.w > 4 WHERE b.id IS NULL OR a.v > 2 GROUP BY b.c",
"SELECT b.c, count(*) n, sum(a.v) s FROM a RIGHT JOIN b ON a.k = b.k GROUP BY b.c",
"SELECT b.c, a.s, count(*) n, sum(a.v) s2 FROM a FULL JOIN b ON a.k = b.k GROUP BY b.c, a.s",
"SELECT a.id, b.c, c.z FROM a LEFT JOIN b ON a.id = b.id LEFT JOIN c ON b.c = c.c",
"SELECT c.z, b.c, count(*) n FROM a LEFT JOIN b ON a.id = b.id LEFT JOIN c ON b.c = c.c GROUP BY c.z, b.c",
"SELECT DISTINCT a.k, b.c FROM a JOIN b ON a.k = b.k WHERE b.w > 2",
"SELECT a.k, a.id, a.v, row_number() OVER (PARTITION BY a.k ORDER BY a.v, a.id) rn FROM a",
"SELECT * FROM (SELECT a.k, a.id, row_number() OVER (PARTITION BY a.k ORDER BY a.v, a.id) rn FROM a) q WHERE q.rn = 1",
"SELECT a.id, a.k, sum(a.v) OVER (PARTITION BY a.k ORDER BY a.id) r, lag(a.v) OVER (PARTITION BY a.k ORDER BY a.id) l FROM a WHERE a.v IS NOT NULL",
"SELECT a.id, a.s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > 5)",
"SELECT a.id, a.s FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > 5)",
"SELECT a.s, count(*) n FROM a WHERE NOT EXISTS (SELECT 1 FROM b JOIN c ON b.c = c.c WHERE b.k = a.k AND c.z > 5) GROUP BY a.s",
"SELECT a.id, a.s FROM a WHERE a.k IN (SELECT b.k FROM b GROUP BY b.k HAVING count(*) > 1)",
"SELECT a.id, t.n FROM a LEFT JOIN (SELECT b.k, count(*) n FROM b GROUP BY b.k) t ON a.k = t.k",
"SELECT a.s, sum(t.n) FROM a JOIN (SELECT b.k, count(*) n FROM b GROUP BY b.k) t ON a.k = t.k WHERE t.n > 1 GROUP BY a.s",
"SELECT t.k, max(t.n) m FROM (SELECT b.k, b.c, count(*) n FROM b GROUP BY b.k, b.c) t GROUP BY t.k",
"SELECT a.k, a.v FROM a UNION ALL SELECT b.k, b.w FROM b WHERE b.w > 1",
"SELECT u.k, count(*) n, sum(u.v) s FROM (SELECT a.k, a.v FROM a UNION ALL SELECT b.k, b.w FROM b) u GROUP BY u.k",
"WITH x AS (SELECT a.k, sum(a.v) s FROM a GROUP BY a.k), y AS (SELECT b.k, sum(b.w) s FROM b GROUP BY b.k) SELECT coalesce(x.k, y.k) k, x.s s1, y.s s2 FROM x FULL JOIN y ON x.k = y.k",
"SELECT c.c, count(*) n FROM a JOIN b ON a.k = b.k JOIN c ON b.c = c.c AND c.z > a.v GROUP BY c.c",
"SELECT a1.k, count(*) n FROM a a1 JOIN a a2 ON a1.k = a2.k AND a1.id < a2.id GROUP BY a1.k",
"SELECT a.id, x.z FROM a LEFT JOIN (SELECT b.k, c.z FROM b JOIN c ON b.c = c.c WHERE c.z > 3) x ON x.k = a.k",
"SELECT b.c, max(q.r) FROM (SELECT a.k, a.id, sum(a.v) OVER (PARTITION BY a.k ORDER BY a.id) r FROM a) q JOIN b ON q.k = b.k GROUP BY b.c",
]
def inline_ctes(q):
    w=q.args.get("with_")
    if not w: return q
    ctes={}
    for c in w.expressions:
        body=c.this.copy(); repl(body,ctes); ctes[c.alias]=body
    q.set("with_",None); repl(q,ctes); return q
def repl(q,ctes):
    for t in list(q.find_all(exp.Table)):
        if t.name in ctes and not t.db: t.replace(exp.Subquery(this=ctes[t.name].copy(),alias=exp.TableAlias(this=exp.to_identifier(t.alias_or_name,quoted=True))))
def run(seed):
    r=random.Random(seed); con=duckdb.connect()
    old={t:{i:rnd_row(r,t,i) for i in range(r.randint(0,8))} for t in SCHEMA}
    new={}
    ch={}
    for t in SCHEMA:
        n=dict(old[t])
        for _ in range(r.choice([0,0,1,1,2,3])):
            i=r.randint(0,9)
            if r.random()<.3: n.pop(i,None)
            else: n[i]=rnd_row(r,t,i)
        new[t]=n
    def load(name,t,rows):
        cols=", ".join(f'"{c}" {"varchar" if ty=="string" else ty}' for c,ty in SCHEMA[t].items())
        con.execute(f'create or replace table "{name}" ({cols})')
        if rows: con.executemany(f'insert into "{name}" values ({",".join("?"*len(SCHEMA[t]))})',rows)
    for t in SCHEMA:
        before=[v for k,v in old[t].items() if new[t].get(k)!=v]; after=[v for k,v in new[t].items() if old[t].get(k)!=v]
        load(f"changed:{t}",t,before+after); load(f"either:{t}",t,list(new[t].values())+before)
        load("old_"+t,t,list(old[t].values())); load("new_"+t,t,list(new[t].values()))
    res=0
    for sql in QS:
        q=inline_ctes(qualify(sqlglot.parse_one(sql,dialect="spark"),schema=SCHEMA,dialect="spark"))
        def state(s):
            z=q.copy()
            for t in z.find_all(exp.Table): t.set("alias",exp.TableAlias(this=exp.to_identifier(t.alias_or_name))); t.set("this",exp.to_identifier(s+t.name))
            return z.sql("duckdb")
        o=con.execute(state("old_")).fetchall(); n=con.execute(state("new_")).fetchall()
        unit=[c for c in q.named_selects if c in A.known(q)]
        assert unit, sql
        ksql=A.changed_keys(q,unit).sql("duckdb")
        keys=set(con.execute(ksql).fetchall())
        idx=[q.named_selects.index(c) for c in unit]
        f=lambda row:tuple(row[i] for i in idx)
        got=[x for x in o if f(x) not in keys]+[x for x in n if f(x) in keys]
        assert sorted(map(repr,got))==sorted(map(repr,n)),(seed,sql,ksql,old,new,keys)
        res+=len(keys)<max(1,len({f(x) for x in o+n}))
    return res
if __name__=="__main__":
    tot=0
    for s in range(int(sys.argv[1]),int(sys.argv[2])): tot+=run(s)
    print("ok",tot)
