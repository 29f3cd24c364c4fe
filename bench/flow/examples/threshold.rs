use flow::*;
fn main(){
  for f in [1.0,1.05,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,1.99]{
    let limit=((131072.0*f) as usize*64)/(2<<20)*(2<<20);
    let slots=limit/64*3;
    let mut t=Ipv4Table::new(&Config{expected_entries: slots/8*7-64, ..Config::new(limit,[3;16])}).unwrap();
    let mut out=vec![]; let mut last=0; let mut next=0.70;
    let mut i=0u32;
    loop{
      let k=Ipv4Key::new(1,i,i.wrapping_mul(77777),6,(i%60000) as u16,443);
      match t.insert(&k,Hops::default(),2,Direction::Forward,0){Insertion::Full=>break,_=>{}}
      i+=1;
      let load=t.len() as f64/t.stats().slots as f64;
      if load>=next { let d=t.stats().counters.displaced; out.push(format!("{:.2}:{:.2}",next,(d-last) as f64/(0.02*t.stats().slots as f64))); last=d; next+=0.02;}
    }
    println!("{:.3} buckets {} full at {:.3}  moves/insert {}",f,t.stats().slots/3,t.len() as f64/t.stats().slots as f64,out.join(" "));
  }
}
