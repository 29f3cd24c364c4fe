use flow::*; use std::time::Instant;
fn conn(i:u32)->Ipv4Key{ let mut w=(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15); w^=w>>29; w=w.wrapping_mul(0xbf58_476d_1ce4_e5b9); w^=w>>32; Ipv4Key::new(7,0x0a00_0000|i>>8,w as u32,6,1024+(i&255) as u16,(w>>40) as u16)}
fn main(){
  let n:u32=std::env::args().nth(1).unwrap().parse().unwrap();
  let secs:f64=std::env::args().nth(2).map_or(3.0,|s|s.parse().unwrap());
  let mut t=Ipv4Table::new(&Config::new(900<<20,[3;16])).unwrap();
  let s=Instant::now();
  for i in 0..n { if !matches!(t.insert(&conn(i),Hops{upstream:1,downstream:2,tag:3},2,Direction::Forward,0),Insertion::New(_)) {panic!("{i} {:?}",t.stats())} }
  println!("fill {:.2} M/s load {:.3} displaced {:.2}", n as f64/s.elapsed().as_secs_f64()/1e6, t.len() as f64/t.stats().slots as f64, t.stats().counters.displaced as f64/n as f64);
  let mut r=88172645463325252u64; let mut rnd=||{r^=r<<13;r^=r>>7;r^=r<<17;((r>>32)*n as u64>>32) as u32};
  let mut res=[None;64];
  let start=Instant::now(); let mut v=vec![]; let mut hits=0;
  while start.elapsed().as_secs_f64()<secs {
    let keys:Vec<_>=(0..4096).map(|_|conn(rnd())).collect();
    let s=Instant::now();
    for k in keys.chunks(64){ t.lookup_batch(k,&mut res); hits+=res[63].is_some() as u64; }
    v.push(s.elapsed().as_secs_f64()*1e9/4096.0);
  }
  v.sort_by(f64::total_cmp); println!("{n} lookup median {:.2} p10 {:.2} ns {hits}", v[v.len()/2],v[v.len()/10]);
}
